"""Tables of where Hugging Face's models keep their parts, one for each architecture."""

from anchorlab.language.architectures.architecture import Architecture
from anchorlab.language.architectures.tables import ARCHITECTURES

__all__ = ["ARCHITECTURES", "Architecture"]
