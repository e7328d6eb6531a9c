"""The pages as HTML shells from templates; the views fill them from data in the reader's browser."""

from __future__ import annotations

from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from harness.report.chunks import Tree
from harness.report.overview import SHOWN_MOVES, STALE_HOURS, Overview


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """One page of the site and the scripts that it needs beyond the common ones."""

    file: str
    title: str
    scripts: tuple[str, ...] = ()
    in_menu: bool = True


PAGES: tuple[Page, ...] = (
    Page(file="index.html", title="Overview", scripts=("query", "matrix", "overview")),
    Page(file="model.html", title="Model", scripts=("matrix", "plot", "evidence", "model"), in_menu=False),
)


def write_pages(tree: Tree, page: Overview) -> None:
    """Write each page's HTML; every value is escaped by the template engine."""
    environment = Environment(
        loader=PackageLoader("harness.report"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for one in PAGES:
        template = environment.get_template(f"{one.file}.j2")
        html = template.render(page=one, pages=PAGES, site=page, stale_hours=STALE_HOURS, shown_moves=SHOWN_MOVES)
        tree.write(one.file, html)
