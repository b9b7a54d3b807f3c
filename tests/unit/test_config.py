"""The settings table, and how text becomes settings."""

from __future__ import annotations

import ipaddress
import pickle
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from mqcore.config import (
    SETTINGS,
    Address,
    BrokerRole,
    FlushDiskType,
    Kind,
    Program,
    Setting,
    Settings,
    SettingValues,
    Value,
    load,
    parse_properties,
)
from mqcore.config.__main__ import main as write_page
from mqcore.config.addresses import bridge_warning
from mqcore.config.agreement import disagreements
from mqcore.config.credentials import Credentials, parse_credentials
from mqcore.config.reading_again import read_again
from mqcore.config.table import ANY_TEXT, SUFFIXED_UNITS, Context, Mark, format_value
from mqcore.config.values import CLASSES
from mqcore.errors import ConfigError
from mqcore.local_address import choose_address, local_address, outward_address
from mqcore.store.paths import StorePaths
from tests.rows import walked

USED = [row for row in SETTINGS if row.used]
USED_INTS = [row for row in USED if row.kind is Kind.INT]
BROKER_ROWS = [row for row in SETTINGS if Program.BROKER in row.programs]


def by_key(rows: Iterable[Setting]) -> list[object]:
    return [pytest.param(row, id=row.key) for row in rows]


def broker(**overrides: str) -> Settings:
    """Settings of a broker that looks at nothing on this machine but its home directory."""
    return load(overrides={"bindAddress": "127.0.0.1", **overrides}, environment={})


def refusal(**overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        broker(**overrides)
    return str(caught.value)


# The table.


def test_table_and_dataclasses_agree() -> None:
    assert disagreements() == []


def test_each_attribute_and_each_spelling_stands_for_one_setting() -> None:
    spellings = [spelling for row in SETTINGS for spelling in row.properties]
    assert len(set(spellings)) == len(spellings)
    assert len({row.name for row in SETTINGS}) == len(SETTINGS)


@walked("row", by_key(SETTINGS))
def test_row_says_what_it_does_and_who_knows_it(row: Setting) -> None:
    assert row.effect
    assert row.programs
    assert re.fullmatch(r"[a-z][a-z0-9_]*", row.name)
    assert bool(row.refused_values) == bool(row.refused_because)
    if row.unit in SUFFIXED_UNITS:
        assert row.name.endswith(f"_{row.unit}")


@walked("row", by_key(SETTINGS))
def test_default_stands_by_its_own_rules(row: Setting) -> None:
    known: dict[str, Value] = {"bindAddress": "127.0.0.1", "storePathRootDir": "/store", "listenPort": 10911}
    known |= {"maxErrorRateOfBloomFilter": 20, "tls.server.mode": "permissive", "expectConsumerNumUseFilter": 32}
    for program in row.programs:
        value = row.default_value(Context(known, {}, program))
        warnings: list[str] = []
        assert row.parse(format_value(value), "here", warnings) == value
        assert warnings == []
        assert format_value(value) not in row.refused_values
        assert not (ANY_TEXT in row.refused_values and value)


@walked("row", by_key([row for row in SETTINGS if row.changeable]))
def test_no_path_address_or_identity_is_changeable(row: Setting) -> None:
    words = ("path", "addr", "port", "ip1", "ip2", "home", "brokername", "clustername", "brokerid", "blacklist", "role")
    assert row.kind is Kind.BOOL or not any(word in row.key.lower() for word in words)
    assert row.kind is not Kind.STR or row.key in ("deleteWhen", "quotas", "logLevels")


IMPORTANT = (
    "namesrvAddr brokerIP1 brokerName brokerClusterName brokerId autoCreateTopicEnable autoCreateSubscriptionGroup "
    "msgTraceTopicName traceTopicEnable rejectTransactionMessage fetchNamesrvAddrByAddressServer transactionTimeOut "
    "transactionCheckMax transactionCheckInterval aclEnable storePathRootDir storePathCommitLog "
    "storePathDLedgerCommitLog flushIntervalCommitLog commitIntervalCommitLog flushCommitLogTimed deleteWhen "
    "fileReservedTime maxTransferBytesOnMessageInMemory maxTransferCountOnMessageInMemory "
    "maxTransferBytesOnMessageInDisk maxTransferCountOnMessageInDisk accessMessageInMemoryMaxRatio messageIndexEnable "
    "messageIndexSafe haMasterAddress brokerRole flushDiskType cleanFileForciblyEnable transientStorePoolEnable"
)


def test_important_settings_are_those_that_rocketmq_prints() -> None:
    assert {row.key for row in SETTINGS if Mark.SHOWN in row.marks} == set(IMPORTANT.split())


def test_settings_page_is_up_to_date() -> None:
    assert write_page(["--check"]) == 0


def test_stale_settings_page_is_noticed_and_rewritten(tmp_path: Path) -> None:
    page = tmp_path / "settings.md"
    assert write_page(["--check", "--page", str(page)]) == 1
    assert write_page(["--page", str(page)]) == 0
    assert write_page(["--check", "--page", str(page)]) == 0
    page.write_text(page.read_text().replace("`4194304`", "`524288`"))
    assert write_page(["--check", "--page", str(page)]) == 1


def test_import_is_light() -> None:
    script = (
        "import sys, mqcore.config; "
        "print([name for name in ('numpy', 'psutil', 'orjson', 'socket', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Values.


def test_defaults_are_those_of_rocketmq() -> None:
    settings = broker()
    assert settings.server.listen_port == 10911
    assert settings.fast_listen_port == 10909
    assert settings.ha_listen_port == 10912
    assert settings.store.mapped_file_size_commit_log == 1_073_741_824
    assert settings.store.mapped_file_size_consume_queue == 6_000_000
    assert settings.store.max_message_size == 4_194_304
    assert settings.store.broker_role is BrokerRole.ASYNC_MASTER
    assert settings.store.flush_disk_type is FlushDiskType.ASYNC_FLUSH
    assert settings.store.store_path_root_dir == str(Path.home() / "store")
    assert settings.store.store_path_commit_log == str(Path.home() / "store" / "commitlog")
    assert settings.broker.default_topic_queue_nums == 8
    assert settings.warnings == ()


@walked("row", by_key(USED_INTS))
def test_number_takes_its_bounds_and_nothing_beyond(row: Setting) -> None:
    for bound in (row.minimum, row.maximum):
        assert row.parse(str(bound), "here", []) == bound
    for beyond in (row.minimum - 1, row.maximum + 1):
        warnings: list[str] = []
        if Mark.CLAMPED in row.marks:
            assert row.parse(str(beyond), "here", warnings) in (row.minimum, row.maximum)
            assert row.key in warnings[0]
        else:
            with pytest.raises(ConfigError, match=rf"{row.key}: got '{beyond}', wanted an integer from .* \(here\)"):
                row.parse(str(beyond), "here", warnings)


@pytest.mark.parametrize("text", ["", "abc", "1.5", "1e3", "0x10", "1_000", "10 0", "\u0661"])
def test_malformed_number_is_refused_and_not_defaulted(text: str) -> None:
    message = refusal(fileReservedTime=text)
    assert message == f"fileReservedTime: got {text!r}, wanted an integer from 0 to 2147483647 hours (command line)"


@pytest.mark.parametrize("text", ["", "yes", "1", "ture", "on"])
def test_malformed_switch_is_refused_and_not_read_as_false(text: str) -> None:
    assert refusal(autoCreateTopicEnable=text).startswith(f"autoCreateTopicEnable: got {text!r}, wanted true or false")


@pytest.mark.parametrize(("text", "wanted"), [("true", True), ("FALSE", False), (" True ", True)])
def test_switch_ignores_case_and_blanks(text: str, wanted: bool) -> None:
    assert broker(autoCreateTopicEnable=text).broker.auto_create_topic_enable is wanted


def test_choice_is_one_of_its_names() -> None:
    assert broker(flushDiskType="SYNC_FLUSH").store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert "wanted one of ASYNC_FLUSH, SYNC_FLUSH" in refusal(flushDiskType="sync_flush")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("messageDelayLevel", "1s  5s"),
        ("messageDelayLevel", "1s 5x"),
        ("messageDelayLevel", ""),
        ("deleteWhen", "24"),
        ("deleteWhen", ""),
        ("namesrvAddr", "host"),
        ("namesrvAddr", "host:0"),
        ("namesrvAddr", "host:65536"),
        ("namesrvAddr", "a:1;;b:2"),
        ("namesrvAddr", "http://a:1"),
        ("namesrvAddr", "::1:9876"),
        ("brokerIP1", "10.0.0.1:10911"),
        ("brokerIP2", "ten zero"),
        ("brokerName", "../x"),
        ("brokerName", "a b"),
        ("brokerClusterName", ".."),
        ("msgTraceTopicName", "a/b"),
        ("storePathCommitLog", ","),
        ("storePathCommitLog", ",".join(f"/{number}" for number in range(33))),
        ("storePathRootDir", "/a,/b"),
        ("multiPathSplitter", "/"),
        ("bindAddress", ""),
        ("workerCpuAffinity", "send"),
        ("workerCpuAffinity", "cook=1"),
        ("workerCpuAffinity", "send=3-1"),
        ("workerCpuAffinity", "send=0;send=1"),
        ("failoverEtcd", "host"),
        ("failoverEtcd", "a:1,,b:2"),
        ("listenPort", "2"),
        ("listenPort", "65535"),
    ],
)
def test_text_that_cannot_stand_is_refused_by_its_key(key: str, text: str) -> None:
    assert refusal(**{key: text}).startswith(f"{key}: got {text!r}, wanted ")


def test_texts_with_a_form_have_parsed_values() -> None:
    settings = broker(
        messageDelayLevel="1s 5m 2h 1d",
        deleteWhen="04;16",
        namesrvAddr="10.0.0.1:9876;ns.example:9877;[::1]:9878;",
        workerCpuAffinity="send=0; pull=1,3-5",
    )
    assert settings.store.delay_levels_ms == (1_000, 300_000, 7_200_000, 86_400_000)
    assert settings.store.delete_hours == {4, 16}
    assert settings.namesrv_addresses == (Address("10.0.0.1", 9876), Address("ns.example", 9877), Address("::1", 9878))
    assert [str(address) for address in settings.namesrv_addresses][2] == "[::1]:9878"
    assert settings.mqcore.cpu_affinity == {"send": {0}, "pull": {1, 3, 4, 5}}


def test_addresses_are_registered_with_their_ports() -> None:
    settings = broker(brokerIP1="10.0.0.1", brokerIP2="[fe80::1]", listenPort="20911")
    assert settings.broker_address == "10.0.0.1:20911"
    assert settings.ha_address == "[fe80::1]:20912"


def test_any_free_port_has_any_free_neighbours() -> None:
    settings = broker(listenPort="0")
    assert (settings.server.listen_port, settings.fast_listen_port, settings.ha_listen_port) == (0, 0, 0)


def test_commit_log_follows_the_root_and_paths_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    settings = broker(storePathRootDir="data")
    assert settings.store.root_dir == tmp_path / "data"
    assert settings.store.commit_log_dirs == (tmp_path / "data" / "commitlog",)
    assert settings.store.read_only_commit_log_dirs == ()
    assert StorePaths.of(settings.store).config == tmp_path / "data" / "config"
    assert broker(storePathRootDir="~/data").store.root_dir == Path.home() / "data"


def test_several_commit_log_directories_are_a_list_of_absolute_paths(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = broker(storePathCommitLog="/b, a,,/b", readOnlyCommitLogStorePaths="/old")
    assert settings.store.commit_log_dirs == (Path("/b"), tmp_path / "a")
    assert settings.store.read_only_commit_log_dirs == (Path("/old"),)
    assert f"storePathCommitLog=/b,{tmp_path}/a\n" in settings.as_properties()
    assert SettingValues.from_json(settings.to_json()).store == settings.store


@pytest.mark.parametrize("name", ["multiPathSplitter", "rocketmq.broker.multiPathSplitter"])
def test_what_separates_the_directories_can_be_changed_as_in_rocketmq(name: str) -> None:
    settings = broker(**{name: ";", "storePathCommitLog": "/a,1;/b"})
    assert settings.store.commit_log_dirs == (Path("/a,1"), Path("/b"))


def test_a_commit_log_needs_a_directory_to_write_in() -> None:
    with pytest.raises(ConfigError, match="a directory that is not in readOnlyCommitLogStorePaths"):
        broker(storePathCommitLog="/a,/b", readOnlyCommitLogStorePaths="/b,/a")


def test_consume_queue_file_is_rounded_up_to_whole_units() -> None:
    settings = broker(mappedFileSizeConsumeQueue="1001")
    assert settings.store.mapped_file_size_consume_queue == 1020
    assert settings.warnings == ("mappedFileSizeConsumeQueue: 1001 becomes 1020, a multiple of 20 (command line)",)


def test_old_spelling_sets_the_same_value() -> None:
    assert broker(mapedFileSizeCommitLog="8192").store.mapped_file_size_commit_log == 8192


def test_message_that_does_not_fit_in_a_frame_is_warned_about() -> None:
    (warning,) = broker(maxMessageSize="16777216").warnings
    assert warning.startswith("maxMessageSize: a message of 16777216 bytes may not fit")


# Roles.


def test_master_has_broker_id_0() -> None:
    settings = broker(brokerId="3")
    assert settings.broker.broker_id == 0
    assert settings.warnings == ("brokerId: 3 becomes 0, since brokerRole is ASYNC_MASTER (command line)",)


def test_slave_needs_an_id_of_its_own() -> None:
    assert refusal(brokerRole="SLAVE", brokerName="a") == (
        "brokerId: got '0', wanted an id above 0 that no other slave of a has, such as brokerId=1, since brokerRole is "
        "SLAVE (default)"
    )


def test_slave_keeps_its_id() -> None:
    settings = broker(brokerRole="SLAVE", brokerId="3")
    assert settings.broker.broker_id == 3
    assert settings.warnings == ()


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_every_role_is_had(role: str) -> None:
    assert broker(brokerRole=role).store.broker_role == role


# Groups that elect their master.

ETCD = {"failoverEtcd": "a:2379,b:2379", "namesrvAddr": "n:9876"}


def test_group_has_its_engine_and_brokers_keep_the_id_by_which_it_is_founded() -> None:
    settings = broker(brokerRole="SYNC_MASTER", brokerId="2", **ETCD)
    assert settings.failover.is_group
    assert settings.failover.etcd_addresses == (Address("a", 2379), Address("b", 2379))
    assert settings.broker.broker_id == 2
    assert settings.warnings == ()
    assert not broker().failover.is_group


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"brokerRole": "SLAVE", "brokerId": "1"}, "brokerRole"),
        ({"haMasterAddress": "a:10912"}, "haMasterAddress"),
        ({"enableMultiDispatch": "true"}, "enableMultiDispatch"),
        ({"enableLmq": "true"}, "enableLmq"),
        ({"namesrvAddr": ""}, "namesrvAddr"),
        ({"failoverEtcdPassword": "p"}, "failoverEtcdUser"),
        ({"failoverEtcdCaFile": "/ca"}, "failoverEtcdTls"),
        ({"failoverEtcdCertFile": "/c", "failoverEtcdTls": "true"}, "failoverEtcdKeyFile"),
        ({"failoverEtcdKeyFile": "/k"}, "failoverEtcdCertFile"),
    ],
)
def test_what_makes_no_sense_in_a_group_is_refused_by_its_key(given: dict[str, str], key: str) -> None:
    message = refusal(**{**ETCD, **given})
    assert message.startswith(f"{key}: got ")
    assert ", since failoverE" in message


def test_group_settings_without_a_group_are_warned_about_and_a_password_is_not_shown() -> None:
    settings = broker(minInSyncReplicas="2", failoverEtcdUser="u", failoverEtcdPassword="secret")
    assert [warning.partition(":")[0] for warning in settings.warnings] == [
        "failoverEtcdUser",
        "failoverEtcdPassword",
        "minInSyncReplicas",
    ]
    assert "secret" not in repr(settings.warnings) + repr(settings) + settings.as_properties()


# Where values come from.


def test_later_sources_win_and_are_named(tmp_path: Path) -> None:
    first, second = tmp_path / "first.conf", tmp_path / "second.conf"
    first.write_text("# a broker\nbrokerName=one\nfileReservedTime=1\nbrokerClusterName=first\n")
    second.write_text("brokerName=two\n\nfileReservedTime=2\n")
    settings = load(
        files=[first, second],
        overrides={"fileReservedTime": "3", "bindAddress": "127.0.0.1"},
        environment={"NAMESRV_ADDR": "ns:9876", "ROCKETMQ_HOME": "/opt/rocketmq"},
    )
    assert settings.broker.broker_cluster_name == "first"
    assert settings.source("brokerClusterName") == f"{first}:4"
    assert settings.broker.broker_name == "two"
    assert settings.source("brokerName") == f"{second}:1"
    assert settings.store.file_reserved_time_hours == 3
    assert settings.source("fileReservedTime") == "command line"
    assert settings.broker.namesrv_addr == "ns:9876"
    assert settings.source("namesrvAddr") == "environment NAMESRV_ADDR"
    assert settings.source("deleteWhen") == "default"
    assert settings.warnings == ()


def test_file_wins_over_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("namesrvAddr=file:1\nbindAddress=127.0.0.1\n")
    assert load(files=[file], environment={"NAMESRV_ADDR": "env:1"}).broker.namesrv_addr == "file:1"


def test_unknown_key_is_refused_with_its_line_and_the_nearest_key(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=a\nautoCreateTopicsEnable=true\n")
    with pytest.raises(ConfigError) as caught:
        load(files=[file], environment={})
    assert str(caught.value) == (
        f"autoCreateTopicsEnable: unknown setting of the broker, did you mean autoCreateTopicEnable? ({file}:2)"
    )


@pytest.mark.parametrize(
    ("key", "wanted"),
    [("BROKERNAME", "did you mean brokerName?"), ("brokerip1", "did you mean brokerIP1?"), ("zzz", "unknown setting")],
)
def test_near_miss_is_explained(key: str, wanted: str) -> None:
    assert wanted in refusal(**{key: "1"})


def test_key_that_mqcore_has_no_use_for_is_taken_with_a_warning() -> None:
    settings = broker(sendMessageThreadPoolNums="16", popPollingSize="1")
    assert settings.unused == {"sendMessageThreadPoolNums": 16, "popPollingSize": 1}
    assert [warning.split(":")[0] for warning in settings.warnings] == [
        "sendMessageThreadPoolNums=16 has no effect",
        "popPollingSize=1 has no effect",
    ]


def test_key_without_use_still_has_a_type() -> None:
    assert refusal(sendMessageThreadPoolNums="many").startswith("sendMessageThreadPoolNums: got 'many', wanted")


@walked("row", by_key([row for row in BROKER_ROWS if row.refused_values]))
def test_value_that_promises_more_than_mqcore_keeps_is_refused(row: Setting) -> None:
    for value in row.refused_values:
        message = refusal(**{row.key: "something" if value == ANY_TEXT else value})
        assert message.startswith(f"{row.key}: got ")
        assert row.refused_because in message


def test_refusal_does_not_depend_on_spelling() -> None:
    assert refusal(authenticationEnabled=" TRUE ").startswith("authenticationEnabled: got TRUE, which is refused")
    assert broker(authenticationEnabled="FALSE").unused == {"authenticationEnabled": False}


@pytest.mark.parametrize(
    "text", ["{", "[]", "null", '"s3cret"', '{"accessKey":"s3cret"}', '{"accessKey":"a","secretKey":""}',
             '{"accessKey":"a","secretKey":7}'],
)  # fmt: skip
def test_credentials_that_cannot_be_read_are_refused_and_not_shown(text: str) -> None:
    said = refusal(innerClientAuthenticationCredentials=text)
    assert said.startswith("innerClientAuthenticationCredentials: got what is not shown, wanted empty, or {")
    assert "s3cret" not in said


def test_credentials_are_an_access_key_and_a_secret() -> None:
    text = '{"accessKey":"replica-1","secretKey":"s3cret:="}'
    settings = broker(innerClientAuthenticationCredentials=text)
    found = parse_credentials(settings.broker.inner_client_authentication_credentials)
    assert found == Credentials("replica-1", "s3cret:=")
    assert "s3cret" not in repr(found)
    assert parse_credentials("") is None


def test_access_control_needs_a_home_with_its_files(tmp_path: Path) -> None:
    assert refusal(aclEnable="true").startswith("rocketmqHome: got '', wanted the directory with conf/plain_acl.yml")
    settings = broker(aclEnable="true", rocketmqHome=str(tmp_path))
    assert settings.broker.acl_enable
    assert settings.broker.rocketmq_home == str(tmp_path)


def test_key_given_twice_is_warned_about_and_the_later_counts(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("bindAddress=127.0.0.1\nmapedFileSizeCommitLog=4096\nmappedFileSizeCommitLog=8192\n")
    settings = load(files=[file], environment={})
    assert settings.store.mapped_file_size_commit_log == 8192
    assert settings.warnings == (
        f"mappedFileSizeCommitLog: given twice, at {file}:2 and {file}:3; the later one counts",
    )


def test_empty_text_leaves_what_is_found_on_the_machine(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("bindAddress=127.0.0.1\nbrokerIP1=\nbrokerName=\n")
    settings = load(files=[file], environment={})
    assert settings.broker.broker_ip1 == "127.0.0.1"
    assert settings.broker.broker_name
    assert settings.source("brokerName") == "default"


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration file: .*missing\.conf"):
        load(files=[tmp_path / "missing.conf"], environment={})


def test_huge_file_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "core"
    with file.open("wb") as stream:
        stream.truncate(2**33)
    with pytest.raises(ConfigError, match="more than 4194304 bytes"):
        load(files=[file], environment={})


APACHE_FILES = {
    "distribution": "brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\ndeleteWhen = 04\n"
    "fileReservedTime = 48\nbrokerRole = ASYNC_MASTER\nflushDiskType = ASYNC_FLUSH\n",
    "tiered": "brokerName = broker-a\nmessageStorePlugIn = org.apache.rocketmq.tieredstore.TieredMessageStore\n"
    "tieredStorageLevel = FORCE\n",
}


@pytest.mark.parametrize("text", APACHE_FILES.values(), ids=APACHE_FILES)
def test_file_written_for_rocketmq_is_taken(text: str, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(text)
    settings = load(files=[file], overrides={"bindAddress": "127.0.0.1"}, environment={})
    assert settings.broker.broker_name == "broker-a"


# The name server.


def test_name_server_has_its_own_port_and_keys(tmp_path: Path) -> None:
    settings = load(
        Program.NAMESRV,
        overrides={"kvConfigPath": str(tmp_path / "kv.json"), "orderMessageEnable": "true"},
        environment={},
    )
    assert settings.server.listen_port == 9876
    assert settings.namesrv.kv_config_path == str(tmp_path / "kv.json")
    assert settings.namesrv.order_message_enable is True
    assert settings.warnings == ()
    assert "brokerName" not in parse_properties(settings.as_properties())


def test_name_server_refuses_keys_of_the_broker() -> None:
    with pytest.raises(ConfigError, match=r"brokerName: not a setting of the name server but of the broker"):
        load(Program.NAMESRV, overrides={"brokerName": "a"}, environment={})


# Text and processes.


def test_printed_settings_load_again_as_the_same_values() -> None:
    settings = broker(brokerName="a-b", storePathRootDir="/tmp/a b\\c\u00e9", namesrvAddr="a:1;b:2", popPollingSize="7")
    again = load(overrides=parse_properties(settings.as_properties()), environment={})
    assert again.used_values() == settings.used_values()
    assert again.unused["popPollingSize"] == 7


def test_all_settings_of_4_9_that_have_a_value_are_printed() -> None:
    printed = parse_properties(broker().as_properties())
    missing = [row for row in BROKER_ROWS if row.since == "4.9" and row.key not in printed]
    assert all(row.default == "" for row in missing)
    assert "namesrvAddr" in {row.key for row in missing}
    assert printed["haListenPort"] == "10912"
    assert printed["aclEnable"] == "false"
    assert not set(printed) & {row.key for row in SETTINGS if row.since == "5.x"}


def test_the_length_of_bitmaps_follows_from_the_bloom_filter_whatever_is_given() -> None:
    def shown(**given: str) -> str:
        return parse_properties(broker(**given).as_properties())["bitMapLengthConsumeQueueExt"]

    assert (shown(), shown(bitMapLengthConsumeQueueExt="64")) == ("112", "112")
    assert shown(expectConsumerNumUseFilter="64", maxErrorRateOfBloomFilter="1") == "616"
    assert broker().unchangeable_among(["bitMapLengthConsumeQueueExt"]) == ("bitMapLengthConsumeQueueExt",)


def test_important_settings_are_a_part_of_all() -> None:
    settings = broker(namesrvAddr="a:1", haMasterAddress="b:2", storePathDLedgerCommitLog="/d")
    important = parse_properties(settings.as_properties(important_only=True))
    assert set(important) == set(IMPORTANT.split())
    assert important.items() <= parse_properties(settings.as_properties()).items()


def test_values_travel_to_another_process_which_does_without_the_table() -> None:
    settings = broker(
        brokerName="a", fileReservedTime="1", flushDiskType="SYNC_FLUSH", brokerId="9", logFormat="json",
        brokerRole="SLAVE",
    )  # fmt: skip
    script = (
        "import sys; from mqcore.config import SettingValues; "
        "values = SettingValues.from_json(sys.stdin.read()); print(values.to_json(), end=''); "
        "print([name for name in sys.modules if name.endswith(('_rows', '.table', '.index'))], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=settings.to_json(),
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": "/nowhere"},
    )
    assert (done.stdout, done.stderr) == (settings.to_json(), "[]\n")
    again = SettingValues.from_json(done.stdout)
    groups = [(getattr(again, group), getattr(settings, group)) for group in CLASSES]
    assert [got for got, _ in groups] == [sent for _, sent in groups]
    for got, sent in groups:
        assert [type(value) for value in got] == [type(value) for value in sent]
    assert again.store.flush_disk_type is FlushDiskType.SYNC_FLUSH


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"broker": {}, "store": {}}', "null"])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"settings in JSON"):
        SettingValues.from_json(text)


def test_settings_pickle() -> None:
    settings = broker(popPollingSize="7")
    assert pickle.loads(pickle.dumps(settings)) == settings


# Changes while running.


def test_update_changes_its_keys_and_nothing_else() -> None:
    before = broker(brokerName="a")
    after = before.update({"fileReservedTime": " 24 ", "deleteWhen": "05;17"})
    changed = {key for key, value in after.used_values().items() if value != before.used_values()[key]}
    assert changed == {"fileReservedTime", "deleteWhen"}
    assert after.store.delete_hours == {5, 17}
    assert after.source("fileReservedTime") == "update"
    assert after.source("brokerName") == "command line"
    assert after.warnings == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"fileReservedTime": "24", "deleteWhen": "25"},
        {"fileReservedTime": "x"},
        {"noSuchKey": "1"},
        {"fileReservedTime": "24", "storePathRootDir": "/etc"},
        {"aclEnable": "true"},
    ],
)
def test_update_with_one_bad_change_is_refused(changes: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        broker().update(changes)


@walked("row", by_key([row for row in BROKER_ROWS if not row.changeable]))
def test_update_refuses_each_key_that_is_not_on_the_list(row: Setting) -> None:
    settings = broker()
    for spelling in row.properties:
        assert settings.unchangeable_among([spelling]) == (spelling,)
        with pytest.raises(ConfigError, match=f"{spelling}: cannot be changed while the broker runs"):
            settings.update({spelling: "1"})


def test_black_list_takes_keys_off_the_list() -> None:
    settings = broker(configBlackList="brokerPermission; fileReservedTime")
    keys = ["brokerPermission", "fileReservedTime", "deleteWhen", "configBlackList", "noSuchKey"]
    assert settings.unchangeable_among(keys) == ("brokerPermission", "fileReservedTime", "configBlackList")


def test_update_of_a_key_without_use_is_taken_with_a_warning() -> None:
    after = broker().update({"sendMessageThreadPoolNums": "32"})
    assert after.unused == {"sendMessageThreadPoolNums": 32}
    assert parse_properties(after.as_properties())["sendMessageThreadPoolNums"] == "32"
    assert after.warnings[0].startswith("sendMessageThreadPoolNums=32 has no effect")


def test_update_warns_about_what_it_brings_and_not_about_what_was_there() -> None:
    before = broker(maxMessageSize="16777216")
    assert before.update({"fileReservedTime": "1"}).warnings == ()
    (warning,) = broker().update({"maxMessageSize": "16777216"}).warnings
    assert "may not fit" in warning


# The advertised address.


@pytest.mark.parametrize(
    ("addresses", "wanted"),
    [
        pytest.param(["127.0.0.1", "192.168.1.5", "10.0.0.5", "10.0.0.6"], "10.0.0.5", id="first-that-is-not-192.168"),
        pytest.param(["192.168.1.5", "192.168.2.5"], "192.168.2.5", id="else-the-last"),
        pytest.param(["192.168.1.5", "::1", "2001:db8::5"], "192.168.1.5", id="ipv4-before-ipv6"),
        pytest.param(["::1", "fe80::5%eth0", "2001:db8::5"], "[fe80::5]", id="else-the-first-ipv6"),
        pytest.param(["127.0.0.1", "::1"], "127.0.0.1", id="else-the-local-host"),
        pytest.param([], "127.0.0.1", id="no-interface"),
    ],
)
def test_address_is_chosen_by_rocketmqs_rule(addresses: list[str], wanted: str) -> None:
    assert choose_address(addresses) == wanted


def test_this_machine_has_an_address() -> None:
    assert broker(brokerIP1=local_address()).broker.broker_ip1 == local_address()
    assert ipaddress.ip_address(outward_address()).version == 4


@pytest.mark.parametrize(
    ("address", "inside", "suspicious"),
    [
        ("127.0.0.1", False, True),
        ("172.17.0.2", False, True),
        ("10.88.0.3", False, True),
        ("172.31.9.9", False, False),
        ("172.31.9.9", True, True),
        ("10.1.2.3", True, False),
        ("[::1]", False, True),
        ("broker.example", True, False),
    ],
)
def test_address_that_others_cannot_reach_is_warned_about(address: str, inside: bool, suspicious: bool) -> None:
    assert (bridge_warning(address, inside) is not None) is suspicious


def test_found_address_is_warned_about_and_a_chosen_one_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqcore.local_address.local_address", lambda: "172.17.0.2")
    (warning,) = load(environment={}).warnings
    assert warning.startswith("brokerIP1: 172.17.0.2 looks like")
    assert load(overrides={"brokerIP1": "172.17.0.2"}, environment={}).warnings == ()


def test_bound_address_is_the_advertised_one() -> None:
    assert load(overrides={"bindAddress": "10.9.8.7"}, environment={}).broker_address == "10.9.8.7:10911"


# Several mistakes, and files that are read again.


def test_one_start_names_all_that_cannot_stand_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("listenPort=x\nnonsense=1\nflushDiskType=Q\ndeleteWhen=99\nbrokerRole=SLAVE\n")
    with pytest.raises(ConfigError) as caught:
        load(files=[file], overrides={"bindAddress": "127.0.0.1", "brokerId": "y"}, environment={})
    said = str(caught.value).splitlines()
    # That a slave needs an id is not among them: the id that was meant is not known.
    assert [line.partition(":")[0] for line in said] == [
        "nonsense", "listenPort", "flushDiskType", "brokerId", "deleteWhen",
    ]  # fmt: skip
    assert [line.rpartition(":")[2] for line in said] == ["2)", "1)", "3)", said[3].rpartition(":")[2], "4)"]


def test_one_start_names_all_that_cannot_stand_together() -> None:
    said = refusal(brokerRole="SLAVE", listenPort="1", aclEnable="true").splitlines()
    assert [line.partition(":")[0] for line in said] == ["listenPort", "rocketmqHome", "brokerId"]


def test_what_may_change_follows_the_files_and_the_rest_waits(caplog: pytest.LogCaptureFixture) -> None:
    current = broker(maxMessageSize="1000", brokerName="a").with_name_server("127.0.0.1:9876")
    fresh = broker(maxMessageSize="2000", brokerName="b", traceOn="false")
    after = read_again(current, fresh)
    assert (after.broker.trace_on, after.store.max_message_size) == (False, 2000)
    assert (after.broker.broker_name, after.broker.namesrv_addr) == ("a", "127.0.0.1:9876")
    assert [record.getMessage() for record in caplog.records] == [
        "brokerName: changed in the files, which the next start will heed (command line)"
    ]


def test_files_that_say_the_same_change_nothing() -> None:
    current = broker(maxMessageSize="1000")
    assert read_again(current, broker(maxMessageSize="1000")) is current
