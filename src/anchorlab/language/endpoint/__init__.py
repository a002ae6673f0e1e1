"""Language models behind OpenAI-compatible servers."""

from anchorlab.language.address import address_of, is_address, read_address
from anchorlab.language.endpoint.access import Access
from anchorlab.language.endpoint.endpoint import Endpoint
