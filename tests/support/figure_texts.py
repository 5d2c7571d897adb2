"""Nothing on a figure may cover anything else or leave the page."""

import itertools


def shown_texts(fig):
    """Every text that is drawn, with its box in pixels."""
    fig.draw_without_rendering()
    texts = [*fig.texts, *(t for legend in fig.legends for t in legend.get_texts())]
    for axes in fig.axes:
        if not axes.axison:
            continue
        texts += [axes.title, axes._left_title, *axes.texts, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            texts += [t.label1 for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
    kept = [t for t in texts if t is not None and t.get_visible() and t.get_text().strip()]
    return [(t.get_text(), t.get_window_extent()) for t in kept]


def assert_legible(fig):
    page = fig.bbox
    boxes = shown_texts(fig)
    assert len(boxes) >= 3
    for text, box in boxes:
        assert box.x0 >= page.x0 - 1 and box.x1 <= page.x1 + 1, f"{text!r} leaves the page"
        assert box.y0 >= page.y0 - 1 and box.y1 <= page.y1 + 1, f"{text!r} leaves the page"
    for (a, one), (b, two) in itertools.combinations(boxes, 2):
        wide = min(one.x1, two.x1) - max(one.x0, two.x0)
        tall = min(one.y1, two.y1) - max(one.y0, two.y0)
        assert wide <= 1 or tall <= 1, f"{a!r} covers {b!r}"
    for legend, axes in itertools.product(fig.legends, fig.axes):
        assert not legend.get_window_extent().overlaps(axes.get_window_extent())
