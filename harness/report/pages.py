"""The pages as HTML shells from templates; the views fill them from data in the reader's browser."""

from __future__ import annotations

from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from harness.report.chunks import Tree
from harness.report.newest import Newest
from harness.report.overview import SHOWN_CHANGES, STALE_HOURS, Overview
from harness.report.text import shown


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """One page of the site and the scripts that it needs beyond the common ones."""

    file: str
    title: str
    scripts: tuple[str, ...] = ()
    in_menu: bool = True


PAGES: tuple[Page, ...] = (
    Page(file="index.html", title="Overview", scripts=("query", "matrix", "overview")),
    Page(file="matrix.html", title="Matrix", scripts=("query", "matrix", "opindex", "explore")),
    Page(file="model.html", title="Model", scripts=("matrix", "plot", "evidence", "model"), in_menu=False),
    Page(file="ops.html", title="Ops", scripts=("matrix", "opindex", "ops")),
    Page(file="trends.html", title="Trends", scripts=("matrix", "plot", "trends")),
    Page(file="compare.html", title="Compare", scripts=("matrix", "compare")),
    Page(file="compat.html", title="Compatibility"),
)


def write_pages(tree: Tree, page: Overview, newest: Newest | None) -> None:
    """Write each page's HTML; every value is escaped by the template engine."""
    environment = Environment(
        loader=PackageLoader("harness.report"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = shown
    known = {
        "pages": PAGES,
        "site": page,
        "stale_hours": STALE_HOURS,
        "shown_changes": SHOWN_CHANGES,
        "configurations": newest.configurations if newest else [],
        "support": newest.support if newest else [],
    }
    for one in PAGES:
        tree.write(one.file, environment.get_template(f"{one.file}.j2").render(page=one, **known))
