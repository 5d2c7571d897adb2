"""What MkDocs does not do by itself: documents outside of docs/, links to them, formulas, and the API pages.

Documents are written for a reader of the repository and stay as they are. A link to another document leads to its page;
one to any other file of the repository leads to that file at the address in pyproject.toml; one to nothing is left, so
that the strict build fails.
"""

from __future__ import annotations

import html
import posixpath
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "src/rewind"
# Documents that are not pages of their own name: path in the repository → page.
ELSEWHERE = {
    "README.md": "index.md",
    "docs/index.md": "documentation.md",
    "config/README.md": "configuration.md",
    "results/README.md": "results.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
WRITTEN = {page: path for path, page in ELSEWHERE.items()}
# Code stays, comments go: Python-Markdown would end a paragraph at a comment that begins a line.
COMMENT = re.compile(r"(^```.*?^```$|`[^`\n]*`)|<!--.*?-->", flags=re.M | re.S)
ITEM = re.compile(r"(?:[-*+]|\d+[.)]) +(?=\S)")
NODE_NAME = "e=e+s+o.id"  # in the program of the search: see `on_post_build`
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', flags=re.S)


def on_config(config: MkDocsConfig) -> None:
    """The API's place in the navigation, and the rewriting of links."""
    config.nav = [*(config.nav or []), {"API": [{name: page_of(name)} for name in packages()]}]
    config.markdown_extensions = [*config.markdown_extensions, Links()]  # type: ignore[list-item]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Documents from outside of docs/, and a page for each package."""
    if index := files.get_file_from_path("index.md"):
        files.remove(index)
    for path, page in ELSEWHERE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    for name in packages():
        files.append(File.generated(config, page_of(name), content=api(name)))


def on_page_markdown(markdown: str, page: Page, **kwargs: Any) -> str:
    """A document without the marks of what is published."""
    Links.source = source_of(page.file.src_uri)
    return widened(COMMENT.sub(lambda found: found[1] or "", markdown))


def widened(markdown: str) -> str:
    """Markdown whose list items have what belongs to them indented by four columns.

    CommonMark, which the repository is read in, takes the width of the item's mark; Python-Markdown takes four, and
    wants an empty line after an item of several paragraphs.
    """
    lines: list[str] = []
    width, item, fenced = 0, 0, False  # of the item's mark, 0 outside of one; its first line
    for line in markdown.split("\n"):
        if line.startswith("```"):
            fenced, width = not fenced, 0
        elif mark := None if fenced else ITEM.match(line):
            if width and "" in lines[item:] and lines[-1]:
                lines.append("")
            width, item = len(mark[0]), len(lines)
        elif width and line.startswith(" " * width):
            line = "    " + line[width:]
        elif line.strip() and not (lines and lines[-1].strip()):
            width = 0  # after an empty line only what is indented belongs to the item
        lines.append(line)
    return "\n".join(lines)


def on_page_content(content: str, page: Page, **kwargs: Any) -> str:
    """A page with its formulas as MathML, which browsers draw without a program."""
    return FORMULA.sub(lambda found: mathml(html.unescape(found[2]), found[1] == "div", page.file.src_uri), content)


def on_post_build(config: MkDocsConfig) -> None:
    """Mend the search of the theme, lunr, where it has stored the words of all pages.

    It names a node of its automaton by the letters of the edges and the numbers of the nodes that they lead to, with no
    mark between them. Words of digits make two nodes of one name, and a search for what begins alike ends in an error.
    """
    (program,) = Path(config.site_dir).glob("assets/javascripts/workers/search.*.js")
    text = program.read_text(encoding="utf-8")
    if text.count(NODE_NAME) != 1:
        raise PluginError(f"{program.name}: {NODE_NAME} is not there once: look whether lunr still needs it.")
    program.write_text(text.replace(NODE_NAME, f'{NODE_NAME}+","'), encoding="utf-8")


def mathml(formula: str, block: bool, where: str) -> str:
    """A formula of LaTeX as MathML.

    Raises:
        PluginError: for a command that is not known.
    """
    drawn = convert(formula, display="block" if block else "inline")
    if unknown := re.search(r"\\\w+", html.unescape(drawn)):
        raise PluginError(f"{where}: the formula {formula!r} has {unknown[0]}, which cannot be drawn.")
    return drawn


def source_of(page: str) -> str:
    """The path in the repository of a page's document; of a made page, where it would be in docs/."""
    return WRITTEN.get(page, f"docs/{page}")


def target(link: str, source: str) -> str:
    """Where a document's link leads on the site.

    Args:
        link: as it is written.
        source: the document's path in the repository.
    """
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or not parts.path:
        return link
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), parts.path))
    anchor = f"#{parts.fragment}" if parts.fragment else ""
    if page := shown(path):
        here = posixpath.relpath(source, "docs") if source not in ELSEWHERE else ELSEWHERE[source]
        return posixpath.relpath(page, posixpath.dirname(here) or ".") + anchor
    if path.startswith("../") or not (ROOT / path).exists():
        return link
    return f"{repository()}/{'tree' if (ROOT / path).is_dir() else 'blob'}/main/{path}{anchor}"


def shown(path: str) -> str | None:
    """The page, or the picture of the site, that a path of the repository is shown as."""
    if path in ELSEWHERE:
        return ELSEWHERE[path]
    inside = re.fullmatch(r"docs/([\w-]+\.md|(?:images|assets)/.+)", path)
    return inside[1] if inside and (ROOT / path).is_file() else None


def repository() -> str:
    """The address of the repository, as the package names it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Documentation"])


def packages() -> list[str]:
    """The library and all packages inside of it, sorted."""
    return sorted(dotted(path.parent) for path in LIBRARY.rglob("__init__.py"))


def page_of(package: str) -> str:
    """The page of a package."""
    return f"api/{package}.md"


def api(package: str) -> str:
    """A package's page, for mkdocstrings to fill: its docstring, its modules and what they say."""
    folder = LIBRARY.parent / package.replace(".", "/")
    public = [dotted(path.with_suffix("")) for path in sorted(folder.glob("*.py")) if not path.stem.startswith("_")]
    return "".join(_sections(package, public))


def _sections(package: str, modules: list[str]) -> Iterator[str]:
    text = (LIBRARY.parent / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8")
    listed = "members: false, " if "__all__" in text else ""  # what it passes on is with its module
    yield f"# {package}\n\n::: {package}\n"
    yield f"    options: {{{listed}show_root_heading: false, show_root_toc_entry: false}}\n"
    for name in modules:
        yield f"\n::: {name}\n    options: {{heading_level: 2}}\n"


def dotted(path: Path) -> str:
    """The module's name of a path of the library."""
    return ".".join(path.relative_to(LIBRARY.parent).parts)


class Links(Extension):
    """Rewrites links and pictures before MkDocs looks where they lead."""

    source = ""
    """The document that is being read."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register ahead of MkDocs's own processor of links, whose priority is 0."""
        md.treeprocessors.register(_Rewrite(md), "rewind-links", 5)


class _Rewrite(Treeprocessor):
    def run(self, root: Element) -> None:
        for element in root.iter():
            for name in ("href", "src"):
                if link := element.get(name):
                    element.set(name, target(link, Links.source))
