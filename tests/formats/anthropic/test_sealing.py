"""Ids and signatures of others: there and back again, and never mistaken."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.sealing import Sealed, decode_id, encode_id, seal, unseal


@given(st.text())
def test_ids(id: str) -> None:
    encoded = encode_id(id)
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", encoded)
    assert decode_id(encoded) == id
    assert encode_id(encoded) != encoded or encoded == id


@pytest.mark.parametrize("id", ["toolu_01", "hrid-", "hrid-!!", "hrid-_w", "hrid-YQ", "hrid-Y"])
def test_ids_that_we_did_not_make_stay(id: str) -> None:
    decoded = decode_id(id)
    assert decoded == id or encode_id(decoded) == id


@given(st.text(), st.text(), st.text())
def test_signatures(vendor: str, id: str, value: str) -> None:
    assert unseal(seal(vendor, id, value)) == Sealed(vendor, id, value)


@given(st.text(alphabet="ABCabc019+/="))
def test_anthropics_own_are_never_taken_for_sealed(signature: str) -> None:
    assert unseal(signature) is None


def test_half_a_seal_is_none() -> None:
    assert unseal("headrace:openai") is None
