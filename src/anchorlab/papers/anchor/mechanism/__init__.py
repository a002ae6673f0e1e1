"""Mechanism: how two layers solve the identity anchor function, part by part."""

from anchorlab.papers.anchor.mechanism.mechanism import STUDY

__all__ = ["STUDY"]
