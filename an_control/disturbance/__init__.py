"""What shuffles, drops, copies, freezes, delays or adds noise to readings: live and offline."""
