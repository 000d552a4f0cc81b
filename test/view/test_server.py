"""The web server in this process, with real sockets and no robot: who is let in, and who is not."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import socket

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("tornado")
pytest.importorskip("msgspec")
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from view.visitor import connected, visiting

from an_control.view import schema
from an_control.view.clients import MOST_UPDATES, BrowserClient
from an_control.view.main import run_live_page_server
from an_control.view.server import MOST_BYTES, PAGE


async def status_of(url: str, **headers: str) -> int:
    try:
        answer = await AsyncHTTPClient().fetch(HTTPRequest(url, headers=headers))
    except HTTPClientError as error:
        return error.code
    return answer.code


async def refused(address: str, **headers: str) -> int:
    with pytest.raises(HTTPClientError) as error:
        await connected(address, **headers)
    return error.value.code


def test_only_who_has_the_token_and_names_this_host_gets_the_page():
    async def run() -> None:
        async with run_live_page_server(0) as (server, _):
            address = server.address
            assert address.startswith("http://127.0.0.1:") and len(server.token) > 20
            root = address.removesuffix(f"{server.token}/")
            assert await status_of(address) == 200
            assert await status_of(f"{address}main.js") == 200
            assert await status_of(address, Host=f"localhost:{server.port}") == 200
            for path in ("", "x/", f"{server.token[:-1]}/", "x/main.js", "x/live", "a/b/c"):
                assert await status_of(root + path) == 403, path
            for host in ("evil.example", f"evil.example:{server.port}", "[", ""):
                assert await status_of(address, Host=host) in (400, 403), host
            for path in ("../server.py", "%2e%2e/server.py", "nothing.js", "a/b"):
                assert await status_of(address + path) in (403, 404), path

    asyncio.run(run())


def test_the_page_opens_by_any_port_that_leads_to_it_and_its_web_socket_too():
    """Browsers leave out port 80, and a tunnel or a container has a port of its own."""

    async def run() -> None:
        async with run_live_page_server(0) as (server, _):
            for host in ("127.0.0.1", "localhost:9000", "LOCALHOST", "[::1]:9000", "[::1]"):
                assert await status_of(server.address, Host=host) == 200, host
                headers = {"host": host, "origin": f"http://{host}"}
                (await connected(server.address, **headers)).close()
                other = headers | {"origin": "http://localhost:1"}
                assert await refused(server.address, **other) == 403, host

    asyncio.run(run())


def test_the_web_socket_must_come_from_this_page():
    async def run() -> None:
        async with run_live_page_server(0) as (server, _):
            address = server.address
            assert await refused(address, origin="http://evil.example") == 403
            assert await refused(address, origin="http://127.0.0.1:1") == 403
            assert await refused(address, origin="null") == 403
            assert await refused(address, origin="") == 403
            assert await refused(address, host=f"evil.example:{server.port}") == 403
            assert await refused(address.replace(server.token, "x")) == 403
            async with visiting(address) as visitor:
                await visitor.state("waiting")

    asyncio.run(run())


def test_the_page_may_load_nothing_from_elsewhere_and_weighs_less_than_two_megabytes():
    async def run() -> None:
        async with run_live_page_server(0) as (server, _):
            weight = 0
            for file in sorted(PAGE.iterdir()):
                request = HTTPRequest(server.address + file.name, decompress_response=False,
                                      headers={"Accept-Encoding": "gzip"})  # fmt: skip
                answer = await AsyncHTTPClient().fetch(request)
                weight += len(answer.body)
                assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
                assert answer.headers["Cache-Control"] == "no-store"
                assert answer.headers["Referrer-Policy"] == "no-referrer"
                assert "http://" not in file.read_text().replace("http://www.w3.org/", "")
            print(f"page weight: {weight} bytes")
            assert weight < 2_000_000

    asyncio.run(run())


def test_without_a_robot_it_says_so_and_waits_and_commands_are_refused():
    async def run() -> None:
        async with run_live_page_server(0) as (server, _), visiting(server.address) as visitor:
            await visitor.state("waiting")
            assert "no robot is running here" in visitor.newest["robot"]["text"]
            reply = await visitor.ask("estop")
            assert not reply["ok"] and reply["text"] == "no robot is running"

    asyncio.run(run())


def test_a_command_that_fails_unexpectedly_is_answered_and_logged(caplog):
    async def run() -> None:
        async with (
            run_live_page_server(0) as (server, looking),
            visiting(server.address) as visitor,
        ):

            async def fail(command: schema.Command) -> schema.ReplyUpdate:
                raise KeyError("slot")

            server.live.execute_browser_command = fail
            reply = await visitor.ask("undo")
            assert (
                not reply["ok"] and reply["text"] == "undo: an unexpected error: KeyError('slot')"
            )
            assert not looking.done()

    asyncio.run(run())
    assert "Traceback" in caplog.text and "KeyError: 'slot'" in caplog.text


def test_ten_thousand_bad_messages_are_counted_and_the_connection_stays():
    rng = random.Random(0)
    bad = ["", "{", "[]", "null", '{"do":"fly","id":1}', '{"do":"cut","id":1}', "\0", "9" * 5000,
           '{"do":"set","id":1,"name":"missing","value":NaN}', b"\xff\xfe", b""]  # fmt: skip

    async def run() -> None:
        async with (
            run_live_page_server(0) as (server, looking),
            visiting(server.address) as visitor,
        ):
            for _ in range(100):
                await asyncio.gather(*(visitor.say(rng.choice(bad)) for _ in range(100)))
            await visitor.until(lambda: server.live.clients.refused == 10_000, "all are counted")
            assert (await visitor.ask("estop"))["text"] == "no robot is running"
            assert all(not one["ok"] for one in visitor.replies)
            health = lambda: visitor.newest["health"]["refused"] == 10_000  # noqa: E731
            await visitor.until(health, "the page shows the count")
            assert not looking.done()

    asyncio.run(run())


def test_a_message_that_is_far_too_long_ends_its_connection_and_no_other():
    async def run() -> None:
        async with (
            run_live_page_server(0) as (server, looking),
            visiting(server.address) as good,
            visiting(server.address) as bad,
        ):
            await bad.say("x" * (MOST_BYTES + 1))
            await bad.until(lambda: bad.closed, "the end of the connection")
            await good.until(lambda: len(server.live.clients) == 1, "one client is left")
            assert not good.closed and not looking.done()

    asyncio.run(run())


def test_a_taken_port_is_named():
    from an_control.cli.common import InputError
    from an_control.cli.view import ViewCommand

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"--port {port}: cannot listen"):
            ViewCommand(port=port).run()
    with pytest.raises(InputError, match="--port 70000"):
        ViewCommand(port=70000).run()


def test_another_host_must_be_asked_for_and_then_only_its_names_and_numbers_are_let_in():
    async def run() -> None:
        async with run_live_page_server(0, "0.0.0.0") as (server, _):
            port, name = server.port, socket.gethostname()
            local = f"{name.partition('.')[0]}.local"
            for host in ("192.0.2.1", name, name.upper(), local, socket.getfqdn(), "[::1]"):
                assert server.allows_host(f"{host}:{port}"), host
                assert server.allows_host(host), host
            for host in ("evil.example", f"{local}.evil.example", "", "[", "x.local"):
                assert not server.allows_host(host), host
                assert not server.allows_host(f"{host}:{port}"), host
            assert f":{port}/{server.token}/" in server.address
            assert await status_of(f"http://127.0.0.1:{port}/{server.token}/") == 200

    asyncio.run(run())


def test_of_a_slow_client_only_the_newest_of_everything_waits():
    async def run() -> None:
        go, sent = asyncio.Event(), []

        async def send(message: bytes, binary: bool) -> None:
            await go.wait()
            sent.append((message, binary))

        client = BrowserClient(send)
        sender = asyncio.ensure_future(client.run())
        for number in range(1000):
            client.enqueue_replacing_same_kind(
                "tick", schema.encode_update(schema.ClustersUpdate([float(number)]))
            )
            client.enqueue_replacing_same_kind("picture", bytes([number % 256]))
            client.enqueue(schema.encode_update(schema.ReplyUpdate(number, True, "")))
            if number == 10:
                await asyncio.sleep(0)
        assert len(client._waiting) <= MOST_UPDATES + 2
        go.set()
        while len(client._waiting):
            await asyncio.sleep(0)
        assert [one for one in sent if one[1]][-1] == (bytes([999 % 256]), True)
        ticks = [json.loads(one)["points"] for one, binary in sent if b"points" in one]
        assert ticks[-1] == [999.0] and len(sent) <= MOST_UPDATES + 5
        client.close()
        await sender

    asyncio.run(run())


def test_a_client_that_reads_nothing_costs_no_memory():
    async def run() -> None:
        async with run_live_page_server(0) as (server, _):
            raw = socket.create_connection(("127.0.0.1", server.port))
            path = f"/{server.token}/live"
            raw.sendall(
                f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nUpgrade: websocket\r\n"
                f"Connection: Upgrade\r\nOrigin: http://127.0.0.1:{server.port}\r\n"
                "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
                .encode()
            )  # fmt: skip
            while not len(server.live.clients):
                await asyncio.sleep(0.01)
            picture = bytes(200_000)

            async def flood(count: int) -> int:
                for _ in range(count):
                    server.live.clients.publish(picture)
                    server.live.clients.publish(schema.ClustersUpdate([0.0] * 500))
                    await asyncio.sleep(0)
                return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

            before = await flood(200)
            assert await flood(3000) - before < 10_000  # kB; all of it would be 600 MB
            raw.close()

    asyncio.run(run())
