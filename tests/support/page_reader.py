"""A reader of pages that refuses what is not well formed."""

import base64
import gzip
import json
from html.parser import HTMLParser

VOID = {"meta", "link", "input", "img", "br", "hr"}


class Reader(HTMLParser):
    """Refuses elements that are not closed in order; keeps ids, addresses and what scripts hold."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.addresses, self.scripts, self.title = [], [], [], [], ""
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids += [found["id"]] if "id" in found else []
        self.addresses += [found[name] for name in ("src", "href", "action", "poster", "srcset") if name in found]
        if tag == "script":
            self.scripts.append([found.get("id"), ""])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1] += data
        if self.open and self.open[-1] == "title":
            self.title += data


def read_json_script(packed):
    """What `json_script` packed, from the content of its element."""
    return json.loads(gzip.decompress(base64.b64decode(packed)))
