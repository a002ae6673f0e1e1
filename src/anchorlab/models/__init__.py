"""Models: modules that compute one member and expose named sites."""

from anchorlab.models.associative import AssociativeSpec
from anchorlab.models.cpu import denormals_as_zero, fast_float32
from anchorlab.models.decoder import DecoderSpec
from anchorlab.models.edits import Edit, Quantise, Remove, Truncate, apply_each, apply_edits, check_edits
from anchorlab.models.fnn import FNNSpec
from anchorlab.models.gpu import full_float32
from anchorlab.models.lstm import LSTMSpec
from anchorlab.models.model import Model, ModelSpec, gather_positions, register_model, register_module
from anchorlab.models.one_layer import OneLayerSpec
from anchorlab.models.parse import default_model, parse_model
from anchorlab.models.recall import RecallSpec
from anchorlab.models.recurrent import GatedLinearAttentionSpec, MambaSpec
from anchorlab.models.sites import Site, Sites, Tap, identity_tap
from anchorlab.models.superposition import SuperpositionSpec
from anchorlab.models.vectors import VectorSpec
