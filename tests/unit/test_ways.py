"""The way to a server: straight to this machine, through the environment's proxy to others, and nowhere else."""

from __future__ import annotations

import pytest

from frontend.cli.ways import Way, loopback

PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "a.localhost", "::1"])
def test_this_machine_is_reached_straight(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its names."""
    assert loopback(host)
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    url = f"http://[{host}]:8080/x" if ":" in host else f"http://{host}:8080/x"
    way = Way.to(url)
    assert way.proxy is None
    assert way.target("/x") == "/x"


@pytest.mark.parametrize("host", ["127.0.0.1.example", "10.0.0.1", "localhost.example", "judge.example"])
def test_other_machines_are_reached_as_the_environment_says(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Straight without a proxy, through it with one, and straight where no_proxy says so."""
    assert not loopback(host)
    url = f"http://{host}:8080/v1/systemone"
    assert Way.to(url).proxy is None
    monkeypatch.setenv("http_proxy", "http://user:pass%20word@proxy.example:3128")
    way = Way.to(url)
    connection = way.open(1.0)
    assert (connection.host, connection.port) == ("proxy.example", 3128)
    assert way.target("/x") == f"http://{host}:8080/x"
    assert way.headers() == {"Proxy-Authorization": "Basic dXNlcjpwYXNzIHdvcmQ="}
    monkeypatch.setenv("no_proxy", host)
    assert Way.to(url).proxy is None


def test_tls_goes_through_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy sees the name and not the request; its own password goes to it alone."""
    monkeypatch.setenv("https_proxy", "user:x@proxy.example:3128")
    way = Way.to("https://judge.example/v1/systemone")
    connection = way.open(1.0)
    assert (connection.host, connection.port) == ("proxy.example", 3128)
    assert connection._tunnel_host == "judge.example"  # type: ignore[attr-defined]
    assert way.target("/x") == "/x"
    assert way.headers() == {}
