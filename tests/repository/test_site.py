"""The documentation site: every document and package has its page, links lead on, and nothing is lost or fetched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from checkout import ROOT
from tabs import opened

mkdocs = pytest.importorskip("mkdocs", reason="the site's tools are not installed: make site installs them")
pytest.importorskip("latex2mathml", reason="the site's tools are not installed: make site installs them")

from markdown_it import MarkdownIt  # noqa: E402
from mkdocs.commands.build import build  # noqa: E402
from mkdocs.config import load_config  # noqa: E402
from mkdocs.exceptions import Abort  # noqa: E402

WHERE = "https://github.com/rewind-bench/rewind"


def configured(**over: Any) -> tuple[Any, ModuleType]:
    """The site's configuration, and its hooks."""
    config = load_config(str(ROOT / "mkdocs.yml"), **over)
    (hooks,) = (module for module in config.hooks.values() if hasattr(module, "on_files"))
    return config, hooks


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    """The functions of docs/site/hooks.py."""
    return configured()[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All documents, and the API of one small package: `make site` takes all of them, which needs longer."""
    folder = tmp_path_factory.mktemp("site")
    config, hooks = configured(site_dir=str(folder))
    hooks.packages = lambda: ["rewind.io"]
    build(config)
    return folder


def documents(hooks: ModuleType) -> dict[str, str]:
    """Every document's path in the repository → its page."""
    return {**{f"docs/{path.name}": path.name for path in ROOT.glob("docs/*.md")}, **hooks.ELSEWHERE}


def article(page: Path) -> str:
    """What a page says, without what is around it."""
    found = re.search(r"<article[^>]*>(.*)</article>", page.read_text(encoding="utf-8"), flags=re.S)
    assert found
    return found[1]


def leaves(nav: Any) -> Iterator[str]:
    """The pages that a navigation names."""
    for entry in nav if isinstance(nav, list) else nav.values():
        yield from [entry] if isinstance(entry, str) else leaves(entry)


@pytest.mark.parametrize(
    ("source", "link", "leads"),
    [
        ("README.md", "docs/statistics.md", "statistics.md"),
        ("README.md", "docs/images/demo_intervals.png", "images/demo_intervals.png"),
        ("README.md", "LICENSE", f"{WHERE}/blob/main/LICENSE"),
        ("docs/index.md", "../config/README.md", "configuration.md"),
        ("docs/index.md", "../CONTRIBUTING.md#data", "contributing.md#data"),
        ("docs/cluster.md", "../results/README.md", "results.md"),
        ("docs/cluster.md", "index.md#pre-training", "documentation.md#pre-training"),
        (
            "docs/heads.md",
            "../src/rewind/models/heads/clip4clip.py",
            f"{WHERE}/blob/main/src/rewind/models/heads/clip4clip.py",
        ),
        ("docs/heads.md", "published/demo", f"{WHERE}/tree/main/docs/published/demo"),
        ("config/README.md", "../README.md", "index.md"),
        ("docs/api/rewind.config.md", "../heads.md", "../heads.md"),
        ("docs/heads.md", "https://arxiv.org/abs/2104.08860", "https://arxiv.org/abs/2104.08860"),
        ("docs/heads.md", "#which-frames", "#which-frames"),
        ("docs/heads.md", "nowhere.md", "nowhere.md"),
        ("docs/heads.md", "../../elsewhere.md", "../../elsewhere.md"),
    ],
)
def test_a_link_leads_to_the_page_or_else_to_the_repository(hooks: ModuleType, source: str, link: str, leads: str):
    assert hooks.target(link, source) == leads


def test_every_document_is_in_the_navigation_once(hooks: ModuleType):
    config = configured()[0]
    hooks.on_config(config)
    pages = list(leaves(config.nav))
    assert sorted(pages) == sorted([*documents(hooks).values(), *map(hooks.page_of, hooks.packages())])


def test_every_package_has_a_page_with_all_of_its_public_modules(hooks: ModuleType):
    library = ROOT / "src/rewind"
    there = {".".join(path.parent.relative_to(ROOT / "src").parts) for path in library.rglob("__init__.py")}
    assert set(hooks.packages()) == there and "rewind.training.samplers" in there
    shown = {name for package in there for name in re.findall(r"^::: (\S+)$", hooks.api(package), flags=re.M)}
    modules = {".".join(path.with_suffix("").relative_to(ROOT / "src").parts) for path in library.rglob("[!_]*.py")}
    assert shown - there == {name for name in modules if ".templates." not in name}, "templates/ is not a package"


@pytest.mark.slow
@pytest.mark.parametrize("tag", ["li", "pre", "tr", "h2", "h3", "blockquote", "img"])
def test_pages_have_the_lists_tables_and_code_that_the_repository_shows(hooks: ModuleType, site: Path, tag: str):
    """Python-Markdown reads nested code and lists differently from CommonMark, in which the documents are written."""
    reader = MarkdownIt("commonmark").enable("table")
    for source, page in documents(hooks).items():
        told = reader.render(hooks.COMMENT.sub(lambda found: found[1] or "", (ROOT / source).read_text("utf-8")))
        made = article((site / page).with_suffix(".html"))
        count = [len(re.findall(rf"<{tag}[ >/]", text)) for text in (told, made)]
        assert count[0] == count[1], f"{source}: <{tag}>"


def test_code_below_an_item_and_the_item_after_it_stay_in_their_list(hooks: ModuleType):
    told = "1. one\n\n       code\n\n2. two\n- a\n  goes on\n\n  ```\n  - code\n  ```\n- b\n\nend\n"
    same = "```\n- code\n  more\n```\n"
    want = "1. one\n\n        code\n\n2. two\n- a\n    goes on\n\n    ```\n    - code\n    ```\n\n- b\n\nend\n"
    assert hooks.widened(told + same) == want + same


def test_formulas_are_drawn_without_a_program(hooks: ModuleType, site: Path):
    page = article(site / "statistics.html")
    told = (ROOT / "docs/statistics.md").read_text(encoding="utf-8")
    blocks = re.findall(r"\$\$.+?\$\$", told, flags=re.S)
    inline = re.findall(r"\$[^$]+\$", re.sub(r"\$\$.+?\$\$|```.*?```", "", told, flags=re.S))
    assert len(blocks) > 10 and page.count('display="block"') == len(blocks)
    assert len(inline) > 50 and page.count('display="inline"') == len(inline)
    assert not re.search(r"arithmatex|\\\(|\\\[|\$\$|\\frac", page)
    with pytest.raises(Exception, match=r"docs: the formula '\\\\nosuch x' has \\nosuch, which cannot be drawn"):
        hooks.mathml(r"\nosuch x", False, "docs")


def test_pages_fetch_nothing_from_elsewhere(site: Path):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|source|iframe)\b[^>]*\bsrc=\"?([^\" >]+)", text)
        loaded += re.findall(r"<link\b[^>]*rel=\"?(?:stylesheet|preload|preconnect)[^>]*href=\"?([^\" >]+)", text)
        assert loaded and not [address for address in loaded if re.match(r"(?:https?:)?//", address)], page.name


def test_the_search_finds_pages_that_are_opened_as_files(browser: Any, site: Path):
    """A box to search in is on every page; browsers start no worker for a file and read no JSON from it."""
    for start in ("index.html", "api/rewind.io.html"):
        with opened(browser, (site / start).as_uri(), plain=True) as tab:
            tab.locator("input.md-search__input").click()
            tab.keyboard.type("Holm correction")
            first = tab.locator("a.md-search-result__link").first
            tab.locator("a.md-search-result__link").nth(1).wait_for()  # results appear one by one
            address = first.get_attribute("href")
            assert address and address.startswith((site / "").as_uri()), "it leads to a page of the same folder"
            tab.goto(address)
            assert "Holm" in tab.locator("article").inner_text()


def test_the_marks_of_what_is_published_are_gone_and_those_in_code_stay(hooks: ModuleType, site: Path):
    assert "<!-- published" not in article(site / "index.html")
    assert "&lt;!-- published: … --&gt;" in article(site / "contributing.html")


def test_a_dead_link_and_a_dead_anchor_fail_the_build(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").write_text("[a](nowhere.md) and [b](#nothing)\n")
    config, hooks = configured(site_dir=str(tmp_path / "site"), docs_dir=str(tmp_path / "docs"), nav=["page.md"])
    hooks.packages, hooks.ELSEWHERE = (lambda: ["rewind.io"]), {}
    with pytest.raises(Abort, match="2 warnings in strict mode"):
        build(config)
