"""Keys: one spelling, no overwriting, and no exception on rubbish."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse.errors import CannotWrite, InvalidFile, InvalidInput
from fedbourse.protocol.keys import SigningKey, key_id, verified

KEY = SigningKey.generate()


def test_a_signature_fits_its_message_and_key_only():
    signature = KEY.sign(b"terms")
    assert verified(KEY.public, b"terms", signature)
    assert not verified(KEY.public, b"other terms", signature)
    assert not verified(SigningKey.generate().public, b"terms", signature)


@given(public=st.text() | st.binary(), message=st.binary(), signature=st.text() | st.none())
def test_rubbish_is_never_verified_and_never_raises(public, message, signature):
    assert not verified(public, message, signature)
    assert not verified(KEY.public, message, signature)
    assert not verified(public, message, KEY.sign(message))


def test_a_key_and_a_signature_have_one_spelling():
    signature = KEY.sign(b"x")
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    # The last character carries unused bits; only zeros there are right.
    others = [signature[:-1] + c for c in alphabet if c != signature[-1]]
    assert not any(verified(KEY.public, b"x", other) for other in others)
    for spelling in (signature + "==", signature + "\n", " " + signature):
        assert not verified(KEY.public, b"x", spelling)


@pytest.mark.parametrize("sign", [0, 0x80])
def test_a_key_that_binds_nobody_is_refused(sign):
    import base64

    raw = bytearray(b"\x01" + bytes(31))
    raw[-1] |= sign
    weak = base64.urlsafe_b64encode(bytes(raw)).rstrip(b"=").decode()
    # R = the neutral point and S = 0 would fit any message under this key.
    forged = base64.urlsafe_b64encode(b"\x01" + bytes(63)).rstrip(b"=").decode()
    assert not verified(weak, b"anything", forged)
    with pytest.raises(InvalidInput, match="weak"):
        key_id(weak)


def test_a_saved_key_is_the_same_and_for_its_user_alone(tmp_path):
    path = tmp_path / "market.key"
    KEY.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SigningKey.load(path).public == KEY.public
    assert [entry.name for entry in tmp_path.iterdir()] == ["market.key"]


def test_a_key_is_never_overwritten(tmp_path):
    path = tmp_path / "market.key"
    KEY.save(path)
    with pytest.raises(CannotWrite, match="never overwritten"):
        SigningKey.generate().save(path)
    assert SigningKey.load(path).public == KEY.public
    assert len(list(tmp_path.iterdir())) == 1


def test_a_key_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "market.key"
    KEY.save(path)
    path.chmod(0o640)
    with pytest.raises(InvalidFile, match="600"):
        SigningKey.load(path)


@pytest.mark.parametrize("content", [b"", b"no key", b"\xff" * 9000])
def test_a_file_without_a_key_is_named(tmp_path, content):
    path = tmp_path / "market.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(InvalidFile, match=r"market\.key"):
        SigningKey.load(path)


def test_a_missing_file_or_folder_is_named(tmp_path):
    with pytest.raises(InvalidFile, match="nowhere"):
        SigningKey.load(tmp_path / "nowhere")
    with pytest.raises(CannotWrite, match="cannot be written"):
        KEY.save(tmp_path / "no" / "folder")


def test_the_import_loads_no_cryptography():
    code = "import sys, fedbourse.protocol.keys; sys.exit('cryptography' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
