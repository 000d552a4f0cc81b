"""The live page, a node that listens to a robot and its policy node, with a web server.

The page runs as a process of its own, and the policy node does not need to know of it. The page
reads the topics that the policy node publishes, and rewires the robot by the node's public
parameters and services.
"""
