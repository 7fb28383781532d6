"""The page at / in a real Chromium: what a person does there, with a mouse, a keyboard, a phone or a screen reader."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import DESK, GUARD_MS, KEY, PHONE, Visit
from tests.process.conftest import short_directory
from tests.process.harness import Framehost, configuration, running

expect.set_options(timeout=GUARD_MS)


def answered(page: Page, *heads: str) -> None:
    """Wait until the answers begin with these words."""
    expect(page.locator(".answer h3")).to_contain_text(list(heads))


def shown(page: Page) -> dict[str, list[tuple[str, float]]]:
    """The probabilities on the screen by question: names and percentages in their order."""
    found: dict[str, list[tuple[str, float]]] = {}
    for answer in page.locator(".answer").all():
        name = answer.locator("h3").inner_text().split(":")[0]
        rows = [row.locator("th, .number").all_inner_texts() for row in answer.locator("tr").all()]
        found[name] = [(label, float(number.removesuffix(" %"))) for label, number in rows]
    return found


def test_the_example_is_answered_at_once_and_nothing_is_loaded_from_elsewhere(visit: Visit, server: Framehost) -> None:
    """Three types of question, the numbers of the API, one origin, no complaint of the browser."""
    page = visit.open(server)
    answered(page, "team: billing", "refund: yes", "harm: ")
    body = page.locator("#code").inner_text().split("<<'END'\n")[1].removesuffix("\nEND")
    answers = server.post(body.encode()).json["answers"]
    expected = {
        "team": list(answers["team"]["probabilities"].values()),
        "refund": [answers["refund"]["noul"], 1 - answers["refund"]["noul"]],
        "harm": list(answers["harm"]["probabilities"].values()),
    }
    on_screen = shown(page)
    assert {name: [p for _, p in rows] for name, rows in on_screen.items()} == {
        name: [pytest.approx(100 * p, abs=0.051) for p in values] for name, values in expected.items()
    }
    widths = page.locator(".answer").first.locator(".bar div").evaluate_all("all => all.map(one => one.style.width)")
    assert [float(width.removesuffix("%")) for width in widths] == pytest.approx(
        [100 * p for p in expected["team"]], abs=0.01
    )
    expect(page.locator("#cost")).to_contain_text(re.compile(r"sparrow · \d+ tokens · .* ms from here · queue "))
    assert {url.split("/")[2] for url in visit.requested if not url.startswith("data:")} == {server.url.split("/")[2]}
    assert visit.complaints == []


def test_the_page_works_below_a_path_of_a_proxy(visit: Visit, server: Framehost) -> None:
    """Everything that it asks for is below that path, and so is what it shows for a program."""

    def passed_on(route: Route) -> None:
        route.continue_(url=route.request.url.replace("/judge/", "/"))

    page = visit.page
    page.route("**/judge/**", passed_on)
    page.goto(f"{server.url}/judge/")
    answered(page, "team: billing")
    expect(page.locator("#code")).to_contain_text(f"{server.url}/judge/v1/systemone")
    expect(page.locator("#models")).to_contain_text("sparrow")
    asked = [url for url in visit.requested if not url.startswith("data:")]
    assert [url for url in asked if not url.startswith(f"{server.url}/judge/")] == []
    assert visit.complaints == []


def test_the_page_is_sent_with_a_policy_that_forbids_everything_else(server: Framehost) -> None:
    """No inline script, no foreign origin, no frame; a program gets JSON at the same address."""
    for path in ("/", "/static/page.js", "/static/page.css"):
        headers = server._http("GET", path, None, {"Accept": "text/html"}).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert headers["x-content-type-options"] == "nosniff"
    program = server.get("/")
    assert program.json["service"] == "framehost"
    assert program.headers["vary"] == "Accept"


def test_an_answer_follows_what_is_typed(visit: Visit, server: Framehost) -> None:
    """Without pressing anything; and only when asked to, once the box is not ticked."""
    page = visit.open(server)
    answered(page, "team: billing")
    page.get_by_label("State").fill("The app crashes whenever I open the settings, with an error")
    answered(page, "team: technical")
    page.get_by_label("Answer while I type").uncheck()
    page.get_by_label("State").fill("I would like to buy more seats, what are your prices?")
    expect(page.locator("#code")).to_contain_text("more seats")
    answered(page, "team: technical")
    page.get_by_role("button", name="Ask", exact=True).click()
    answered(page, "team: sales")


def test_everything_can_be_done_with_a_keyboard(visit: Visit, server: Framehost) -> None:
    """A new question gets the focus, so does a new option; what is removed leaves it at its neighbour."""
    page = visit.open(server)
    answered(page, "team: billing")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the playground")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Add a question").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Control+A")
    page.keyboard.type("tone")
    expect(page.get_by_role("group", name="Question 4").get_by_label("Id")).to_have_value("tone")
    typed = ("How does the customer sound?", "angry", "furious, shouting", "", "calm", "quiet, polite")
    page.keyboard.press("Tab")  # the type stays a choice
    for words in typed:
        page.keyboard.press("Tab")
        page.keyboard.type(words)  # nothing on the button that removes
    page.keyboard.press("Control+Enter")
    expect(page.locator(".answer h3").nth(3)).to_contain_text("tone: ")
    group = page.get_by_role("group", name="Question 4")
    group.get_by_role("button", name="Add an option").focus()
    page.keyboard.press("Enter")
    expect(group.get_by_label("Name of option 3")).to_be_focused()
    group.get_by_role("button", name="Remove option 3").focus()
    page.keyboard.press("Enter")
    expect(group.get_by_label("Name of option 2")).to_be_focused()
    group.get_by_role("button", name="Remove question 4").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("group", name="Question 3").get_by_label("Id")).to_be_focused()


def test_what_is_missing_is_said_to_whoever_asks_on_purpose(visit: Visit, server: Framehost) -> None:
    """Not on every key while a question is being written; with the server's words and their place."""
    visit.page.clock.install()
    page = visit.open(server)
    answered(page, "team: billing")
    page.get_by_role("button", name="Add a question").click()
    group = page.get_by_role("group", name="Question 4")
    group.get_by_label("Id").fill("calm")
    group.get_by_label("Type").select_option("noul")
    asked = len([url for url in visit.requested if url.endswith("/v1/systemone")])
    page.clock.run_for(60_000)
    assert len([url for url in visit.requested if url.endswith("/v1/systemone")]) == asked
    expect(page.get_by_role("alert")).to_be_hidden()
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("422: questions, calm, instructions: ")
    group.get_by_label("Instructions").fill("Is the customer calm?")
    expect(page.get_by_role("alert")).to_be_hidden()
    answered(page, "team: billing", "refund", "harm", "calm: ")


def test_the_programs_say_the_same_as_the_page(visit: Visit, server: Framehost) -> None:
    """Both are run as they stand there, with a text that has everything a shell or Python could stumble over."""
    page = visit.open(server)
    state = 'It\'s "double", `back`, $HOME \\n, """ and \u00e9\u6f22\n!\nEND\nI want my money back'
    page.get_by_label("State").fill(state)
    expect(page.locator("#code")).to_contain_text("money back")
    page.get_by_role("button", name="Ask", exact=True).click()
    answered(page, "team: ", "refund: ")
    curl = page.locator("#code").inner_text()
    page.get_by_role("button", name="Python").click()
    expect(page.get_by_role("button", name="Python")).to_have_attribute("aria-pressed", "true")
    program = page.locator("#code").inner_text()
    sent = json.loads(curl.split("<<'END'\n")[1].removesuffix("\nEND"))
    assert sent["state"] == state
    answers = server.post(sent).json["answers"]
    by_curl = subprocess.run(["bash", "-c", curl], capture_output=True, timeout=60, check=True)
    assert json.loads(by_curl.stdout)["answers"] == answers
    by_python = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert by_python.stdout.splitlines() == [f"{name} {answer}" for name, answer in answers.items()]


def test_texts_of_people_stay_texts(visit: Visit, server: Framehost) -> None:
    """Markup, names that JavaScript knows, numbers in another order: as they were typed."""
    page = visit.open(server)
    answered(page, "team: billing")
    for _ in range(2):
        page.get_by_role("button", name=re.compile("Remove question")).last.click()
    group = page.get_by_role("group", name="Question 1")
    names = ["10", "9", "<img src=x onerror=alert(1)>", "__proto__", "constructor"]
    for _ in range(len(names) - 3):
        group.get_by_role("button", name="Add an option").click()
    for number, name in enumerate(names, 1):
        group.get_by_label(f"Name of option {number}").fill(name)
        group.get_by_label(f"Description of option {number}").fill(f"</td><script>alert({number})</script>")
    group.get_by_label("Id").fill("<b>id</b>")
    expect(page.locator(".answer h3").first).to_contain_text("<b>id</b>: ")
    assert [name for name, _ in shown(page)["<b>id</b>"]] == names
    code = page.locator("#code").inner_text()
    criteria = json.loads(code.split("<<'END'\n")[1].removesuffix("\nEND"))["questions"]["<b>id</b>"]["criteria"]
    assert list(criteria) == names
    assert page.locator("main img, main script, main b").count() == 0
    assert visit.complaints == []


def test_a_state_that_is_json_is_sent_as_json(visit: Visit, server: Framehost) -> None:
    """An object or a list; a number or a word in quotes is a text like any other."""
    page = visit.open(server)
    for typed, sent in (('{"a": [1]}', {"a": [1]}), ("[1, 2]", [1, 2]), ("7", "7"), ('"x"', '"x"'), ("{no", "{no")):
        page.get_by_label("State").fill(typed)
        code = page.locator("#code").inner_text()
        assert json.loads(code.split("<<'END'\n")[1].removesuffix("\nEND"))["state"] == sent


def test_the_live_view_shows_models_hosts_and_deaths(visit: Visit, server: Framehost) -> None:
    """A host that is killed is there a moment later, with how it ended; paused, nothing moves."""
    visit.page.clock.install()
    page = visit.open(server)
    answered(page, "team: billing")
    row = page.get_by_role("row", name=re.compile("^sparrow"))
    expect(row).to_contain_text("ready")
    expect(row).to_contain_text("0 of 1024 requests")
    expect(page.locator("#health")).to_have_text("ok")
    before = server.host()["restarts"]
    psutil.Process(server.host()["pid"]).kill()
    deaths = page.get_by_role("list", name="Recent deaths")
    expect(deaths).to_contain_text("sparrow: killed by SIGKILL")
    expect(row.get_by_role("cell").last).to_have_text(str(before + 1))
    page.get_by_role("button", name="Pause").click()
    asked = len([url for url in visit.requested if url.endswith("/status")])
    page.get_by_label("State").fill("again: I want my money back")
    answered(page, "team: billing")
    page.clock.run_for(60_000)
    assert len([url for url in visit.requested if url.endswith("/status")]) == asked


def test_a_page_that_was_opened_a_moment_too_early_catches_up(visit: Visit, server: Framehost) -> None:
    """The models could not be read at first: they are there with the next look, and the example is answered."""
    visit.page.route("**/v1/models", lambda route: route.abort(), times=1)
    page = visit.open(server)
    answered(page, "team: billing")
    expect(page.get_by_label("Model", exact=True)).to_have_value("sparrow")


def test_the_servers_default_model_is_chosen_until_a_person_chooses(visit: Visit, tmp_path: Path) -> None:
    """Not the first of the list: who opens the page meets the model that a request without a name meets."""
    config = configuration(tmp_path / "two.toml", {"other": {}, "preset": {"family": "sparrow"}}, default="preset")
    with short_directory() as runtime, running(runtime, config=config) as two:
        page = visit.open(two)
        answered(page, "team: billing")
        model = page.get_by_label("Model", exact=True)
        expect(model).to_have_value("preset")
        assert model.get_by_role("option").all_inner_texts() == ["other", "preset"]
        model.select_option("other")
        expect(page.locator("#code")).to_contain_text('"model": "other"')


def test_with_keys_the_page_asks_for_one_and_keeps_it_in_the_tab(visit: Visit, locked: Framehost) -> None:
    """A wrong one is said; a right one works, survives a reload, and is nowhere that outlives the tab."""
    page = visit.open(locked)
    expect(page.get_by_label("API key")).to_be_focused()
    expect(page.locator("#health")).to_have_text("key needed")
    page.keyboard.type("a-wrong-key-of-good-length")
    page.keyboard.press("Enter")
    expect(page.locator("#live-note")).to_contain_text("401: the API key is not valid")
    page.get_by_label("API key").fill(KEY)
    page.keyboard.press("Enter")
    answered(page, "team: billing")
    expect(page.locator("#health")).to_have_text("ok")
    page.reload()
    answered(page, "team: billing")
    assert KEY not in page.content()
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    assert not [url for url in visit.requested if KEY in url]
    environment = {**os.environ, "FRAMEHOST_API_KEY": KEY}
    curl = page.locator("#code").inner_text()
    page.get_by_role("button", name="Python").click()
    for command in (["bash", "-c", curl], [sys.executable, "-c", page.locator("#code").inner_text()]):
        assert KEY not in command[2]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
        assert "billing" in ended.stdout


LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": DESK},
    "dark": {"color_scheme": "dark", "viewport": DESK},
    "phone": {"color_scheme": "light", "viewport": PHONE, "has_touch": True, "is_mobile": True},
    "phone-dark": {"color_scheme": "dark", "viewport": PHONE, "has_touch": True, "is_mobile": True},
}


@pytest.mark.parametrize(("name", "visit"), LOOKS.items(), ids=LOOKS, indirect=["visit"])
def test_everyone_can_use_it(name: str, visit: Visit, server: Framehost, screenshots: Path | None) -> None:
    """The rules of WCAG 2.2 A and AA that a program can check, contrast included; no sideways scrolling."""
    page = visit.open(server)
    answered(page, "team: billing", "refund: yes", "harm: ")
    expect(page.get_by_role("row", name=re.compile("^sparrow"))).to_contain_text("ready")
    page.locator("#error").evaluate("one => { one.textContent = 'what an error looks like'; one.hidden = false; }")
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    result = Axe().run(page, options={"runOnly": {"type": "tag", "values": tags}})
    assert result.violations_count == 0, result.generate_report()
    page.locator("#error").evaluate("one => { one.hidden = true; }")
    wide, room = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide <= room
    if screenshots is not None and name != "phone-dark":
        screenshots.mkdir(exist_ok=True)
        if name == "phone":
            page.get_by_role("heading", name="Answers").evaluate("one => one.scrollIntoView()")
        page.screenshot(path=screenshots / f"page-{name}.png")
