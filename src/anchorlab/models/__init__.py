"""What learns: single-member modules with named sites."""

from anchorlab.models.model import Model, ModelSpec, register_model
from anchorlab.models.sites import Site, Sites, Tap, identity_tap
