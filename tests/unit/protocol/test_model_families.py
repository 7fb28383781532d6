"""Families are found by name, in the table or through an entry point, and their halves only when asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from protocol.families import BUILT_IN, ENTRY_POINT_GROUP, Family, UnknownFamily, find, resolve

PARROT = """
from protocol.families import Family
FAMILY = Family(name="parrot", processor="p:P", executor="e:E", payload="q:Q", retire_on_error=True)
OTHER = Family(name="other", processor="p:P", executor="e:E", payload="q:Q")
TEXT = "not a family"
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A distribution on the path whose one entry point is named and aimed by the test's parameter."""
    name, target = getattr(request, "param", ("parrot", "parrot_family:FAMILY"))
    metadata = tmp_path / "parrot_family-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: parrot-family\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{name} = {target}\n")
    (tmp_path / "parrot_family.py").write_text(PARROT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "parrot_family", raising=False)
    return tmp_path


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_family_is_found_by_its_name(name: str) -> None:
    """Each entry of the table, under the name it has itself."""
    assert find(name) is BUILT_IN[name]
    assert find(name).name == name


@pytest.mark.usefixtures("installed")
def test_a_registered_family_is_found_by_its_entry_point() -> None:
    """Installing a distribution is all it takes."""
    family = find("parrot")
    assert isinstance(family, Family)
    assert (family.name, family.executor, family.retire_on_error) == ("parrot", "e:E", True)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("installed", [("sparrow", "parrot_family:OTHER")], indirect=True)
def test_a_built_in_name_cannot_be_taken() -> None:
    """What is installed beside us does not change what a built-in name means."""
    assert find("sparrow") is BUILT_IN["sparrow"]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "installed",
    [
        ("parrot", "parrot_family:TEXT"),
        ("parrot", "parrot_family:OTHER"),
        ("parrot", "parrot_family:ABSENT"),
        ("parrot", "no_such_module_of_ours:FAMILY"),
    ],
    indirect=True,
    ids=["not a Family", "another name", "no such attribute", "no such module"],
)
def test_a_wrong_entry_point_is_one_error_that_names_it() -> None:
    """Whatever is wrong with it, the operator reads which entry point of which group it is."""
    with pytest.raises(UnknownFamily, match=f"'parrot'.*{ENTRY_POINT_GROUP}"):
        find("parrot")


@pytest.mark.usefixtures("installed")
def test_an_unknown_name_lists_the_known_ones() -> None:
    """Built-in and registered names alike."""
    with pytest.raises(UnknownFamily, match=r"'parot'.*parrot.*sparrow"):
        find("parot")


def test_a_reference_resolves_to_its_object() -> None:
    """Module, colon, attribute."""
    assert resolve("protocol.families:Family") is Family


@pytest.mark.parametrize("reference", ["protocol.families", "protocol.families:", ":Family", ""])
def test_a_reference_without_both_parts_is_refused(reference: str) -> None:
    """The message shows what was given."""
    with pytest.raises(ValueError, match="module:attribute"):
        resolve(reference)


def test_knowing_a_family_imports_neither_half() -> None:
    """In a fresh interpreter, finding every built-in family loads no module of front or host, and no heavy library."""
    program = """
import sys
from protocol.families import BUILT_IN, find
assert [find(name).name for name in BUILT_IN] == list(BUILT_IN)
heavy = {"frontend", "executor_host", "sparrow_decider", "numpy", "torch", "zmq", "aiohttp", "asyncio"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
