"""The live page: a node that listens to a robot and its policy node, and a web server for browsers.

It runs as a process of its own, which the policy node does not know: the page reads the topics that
the node publishes, and rewires by its public parameters and services.
"""
