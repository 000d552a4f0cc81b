"""Which topic is suggested where nobody publishes the one that a wiring names."""

from types import SimpleNamespace

from an_control.ros.graph import suggest_similar_topic

TYPE = "sensor_msgs/msg/JointState"


class Graph:
    """A node that sees these topics: for each one the names of its publishers."""

    def __init__(self, publishers: dict[str, list[str]], own: str = "/policy") -> None:
        self._publishers, self._own = publishers, own

    def get_fully_qualified_name(self) -> str:
        return self._own

    def resolve_topic_name(self, topic: str) -> str:
        return f"/{topic}"

    def get_topic_names_and_types(self) -> list[tuple[str, list[str]]]:
        return [(name, [TYPE]) for name in self._publishers]

    def get_publishers_info_by_topic(self, topic: str) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(node_namespace="/", node_name=name) for name in self._publishers[topic]
        ]


def test_what_the_node_publishes_itself_is_not_suggested_as_its_sensor() -> None:
    own = {"/policy/channels": ["policy"], "/commands": ["policy"], "/joint_states": []}
    assert suggest_similar_topic(Graph(own), "joint_states", TYPE) == ""
    found = suggest_similar_topic(Graph({**own, "/joints": ["driver"]}), "joint_states", TYPE)
    assert found == "; /joints is published with this type"


def test_what_another_policy_node_publishes_is_not_suggested_as_a_sensor() -> None:
    running = {"/policy/channels": ["policy"], "/policy/proposed": ["policy"], "/out": ["policy"]}
    assert suggest_similar_topic(Graph(running, "/check"), "joint_states", TYPE) == ""
    graph = Graph({**running, "/arm": ["driver"]}, "/check")
    found = suggest_similar_topic(graph, "proposed", TYPE)
    assert found == "; /arm is published with this type"
