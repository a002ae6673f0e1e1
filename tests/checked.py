"""The run-time check of types and shapes; as for type checkers, an int will do where a float is expected."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
