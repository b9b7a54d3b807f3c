"""Numbers and names that the protocol fixes."""

from __future__ import annotations

import pytest

from mqcore.codes import (
    CURRENT_VERSION,
    VERSION_NAMES,
    LanguageCode,
    MQVersion,
    PermName,
    RequestCode,
    ResponseCode,
    SysFlag,
    version_name,
)

KNOWN_VERSIONS = {
    "V3_0_0_SNAPSHOT": 0,
    "V3_0_7_SNAPSHOT": 28,
    "V3_0_11": 37,
    "V3_1_8_SNAPSHOT": 62,
    "V3_4_9": 121,
    "V4_0_0": 213,
    "V4_1_0_SNAPSHOT": 232,
    "V4_4_0": 293,
    "V4_5_2": 317,
    "V4_6_0": 333,
    "V4_9_3": 399,
    "V4_9_4": 401,
    "V4_9_8": 409,
    "V5_0_0": 413,
    "V5_1_0": 433,
    "V5_1_4": 441,
    "V5_2_0": 453,
    "V5_3_0": 473,
    "V5_3_1": 475,
    "V5_3_2": 477,
    "V5_3_3": 479,
    "HIGHER_VERSION": 612,
}


@pytest.mark.parametrize(("name", "ordinal"), KNOWN_VERSIONS.items())
def test_version_ordinals_are_java_s(name: str, ordinal: int) -> None:
    assert VERSION_NAMES.index(name) == ordinal
    assert version_name(ordinal) == name


def test_version_names_are_unique() -> None:
    assert len(set(VERSION_NAMES)) == len(VERSION_NAMES) == 613


def test_a_version_beyond_the_list_is_higher_version() -> None:
    assert version_name(100_000) == "HIGHER_VERSION"
    assert version_name(-1) == "V3_0_0_SNAPSHOT"


def test_our_version_is_the_baseline() -> None:
    assert CURRENT_VERSION == MQVersion.V4_9_8 == 409


@pytest.mark.parametrize("code", [13, 99, -2])
def test_an_unknown_language_is_unknown(code: int) -> None:
    assert LanguageCode(code) is (LanguageCode.NODE_JS if code == 13 else LanguageCode.UNKNOWN)


@pytest.mark.parametrize(
    ("perm", "text"), [(0, "---"), (1, "--X"), (2, "-W-"), (4, "R--"), (6, "RW-"), (7, "RWX"), (14, "RW-")]
)
def test_permission_text_is_that_of_the_tools(perm: int, text: str) -> None:
    assert PermName.to_text(perm) == text
    assert PermName.is_readable(perm) == ("R" in text)
    assert PermName.is_writeable(perm) == ("W" in text)
    assert PermName.is_inherited(perm) == ("X" in text)


def test_codes_that_share_a_number_are_the_known_ones() -> None:
    aliases = {name for name, code in ResponseCode.__members__.items() if code.name != name}
    assert aliases == {"POLLING_FULL", "POLLING_TIMEOUT", "BROKER_NOT_EXIST"}
    assert len(RequestCode.__members__) == len(list(RequestCode))


def test_compression_bits_do_not_overlap_the_others() -> None:
    others = 0xFF
    assert SysFlag.COMPRESSION_ZLIB & others == 0
    assert SysFlag.COMPRESSION_LZ4 | SysFlag.COMPRESSION_ZSTD == SysFlag.COMPRESSION_ZLIB
