"""The attention viewer: views for a page, made from runs or attention patterns, and the scripts that draw them."""

from anchorlab.findings.view import AttentionView, LiveModel, ViewExample, ViewPath, ViewScores
from anchorlab.viewer.live import can_run, live_model
from anchorlab.viewer.make import view_patterns, view_run
from anchorlab.viewer.oracle import page_oracle
from anchorlab.viewer.page_data import view_json, viewer_script, viewer_style
from anchorlab.viewer.texts import TextHeads, read_texts
