"""The live page: a node that listens to a robot and its policy node, and a web server for browsers.

A process of its own. The policy node knows nothing of it: the page reads what that publishes, and
rewires by the parameters and services that are there for everybody.
"""
