"""What a reader of a page sees."""

from html.parser import HTMLParser

HIDDEN = ("style", "script", "svg")


class Reader(HTMLParser):
    """The text of a page without its styles, scripts and drawings, and its elements with their classes."""

    def __init__(self, page):
        super().__init__()
        self.words, self.elements, self._hidden = [], [], 0
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self._hidden += tag in HIDDEN
        self.elements.append((tag, dict(attributes).get("class", "")))

    def handle_endtag(self, tag):
        self._hidden -= tag in HIDDEN

    def handle_data(self, text):
        if not self._hidden and text.strip():
            self.words.append(" ".join(text.split()))

    @property
    def text(self):
        return " | ".join(self.words)
