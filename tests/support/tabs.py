"""Tabs of a browser that note every fault, and what tests press in the explorer."""

import contextlib
from pathlib import Path

import axe_playwright_python


@contextlib.contextmanager
def opened(browser, address, width=1440, clipboard=False, plain=False, **options):
    """A tab without a network on an address; at the end nothing may have gone wrong in it.

    Args:
        browser: the fixture.
        address: of the page.
        width: of the window.
        clipboard: whether the page may use it as a page of the network may.
        plain: whether it is another page than the report, which does not say when it has settled.
        options: of the context.
    """
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, **options)
    if clipboard:
        context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab, faults = context.new_page(), []
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
    tab.on(
        "request", lambda asked: None if asked.url.startswith(("file:", "data:", "blob:")) else faults.append(asked.url)
    )
    tab.goto(address)
    yield tab if plain else settled(tab)
    context.close()
    assert faults == []


def settled(tab):
    """The tab, once nothing goes on in the report that will change what it shows."""
    tab.locator("html[data-settled]").wait_for(state="attached")
    return tab


def words(tab):
    """Captions of the list's rows."""
    return settled(tab).locator(".row .words").all_inner_texts()


def pick(tab, name, value):
    """Press a choice of the controls."""
    tab.locator(f'label:has(input[name="{name}"][value="{value}"])').click()
    settled(tab)


def counted(tab):
    """How many queries the explorer says that it lists."""
    return int(settled(tab).locator("#count").inner_text().split()[0].replace(",", ""))


def axe_faults(tab):
    """What axe-core objects to: its rule, and the elements."""
    source = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
    tab.evaluate(source)
    found = tab.evaluate("axe.run(document, {resultTypes: ['violations', 'passes']})")
    assert len(found["passes"]) > 15, "it looked"
    return {fault["id"]: [node["html"] for node in fault["nodes"]] for fault in found["violations"]}
