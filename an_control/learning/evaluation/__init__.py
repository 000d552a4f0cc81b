"""What a policy makes of its episodes: tables, pictures, identification."""
