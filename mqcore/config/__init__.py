"""Every setting of the broker and of the name server, in one table, and the typed values that come from it.

One row (``Setting``) per setting: name, RocketMQ's property names, group, type, default, unit, range, changeable while
running or not, used or not, effect. Files, command line, environment, remote updates, ``docs/settings.md`` and the
tests walk the rows. Importing this package opens nothing and imports neither psutil nor numpy, and its names only when
they are used.

Loading::

    from mqcore.config import Program, Settings, load

    settings = load(files=["broker.conf"], overrides={"listenPort": "10911"})          # program=Program.BROKER
    settings = load(Program.NAMESRV, files=["namesrv.conf"])
    settings = load(overrides={"storePathRootDir": str(tmp_path), "bindAddress": "127.0.0.1"}, environment={})  # tests

*files* are Java properties files, later ones win; *overrides* map property names (aliases allowed) to text and win
over files; *environment* (os.environ unless given) supplies NAMESRV_ADDR and ROCKETMQ_HOME, below files. ConfigError
names the key, what was got, what was wanted and file:line. ``settings.warnings`` is a tuple of sentences that the
caller logs once. In what follows a *key* is a property name in RocketMQ's present spelling.

Values are named tuples, one for each group; they have what mqcore uses. An attribute is the property in snake_case,
spelled right, with its unit at the end (``_ms``, ``_seconds``, ``_hours``, ``_percent``); sizes are bytes::

    settings.broker    BrokerSettings   broker_name, broker_cluster_name, broker_id, broker_ip1, namesrv_addr, ...
    settings.store     StoreSettings    store_path_root_dir, mapped_file_size_commit_log, flush_disk_type, ...
    settings.server    ServerSettings   listen_port, server_channel_max_idle_time_seconds, server_socket_backlog
    settings.mqcore    MqcoreSettings   bind_address, namesrv_listen_port, send_worker_nums, frame_max_length, ...
    settings.namesrv   NamesrvSettings  kv_config_path, config_store_path, order_message_enable, ...
    settings.tls       TlsSettings      server_mode, server_cert_path, server_key_path, use_tls, ...
    settings.failover  FailoverSettings  is_group, etcd, lease_seconds, min_in_sync_replicas, ...
    BrokerRole.ASYNC_MASTER, FlushDiskType.SYNC_FLUSH                     StrEnums, equal to their text

Derived values, so that each rule stands once::

    settings.namesrv_addresses      tuple[Address, ...]; Address(host, port), str() is "host:port"
    settings.fast_listen_port       listen port - 2 (0 when the listen port is 0, "any free port")
    settings.ha_listen_port         listen port + 1 (likewise)
    settings.broker_address         "brokerIP1:listenPort", as registered; settings.ha_address likewise with brokerIP2
    settings.store.delay_levels_ms  tuple[int, ...]: entry 0 is level 1
    settings.store.delete_hours     frozenset[int] of deleteWhen
    settings.store.root_dir         Path; commit_log_dirs and read_only_commit_log_dirs are several; what lies where in
                                    them is known by StorePaths.of(settings.store)
    settings.mqcore.cpu_affinity    dict of worker kind to processor numbers, from "send=0;pull=1,3-5"

Text and processes::

    settings.as_properties(important_only=False) -> str     "key=value" lines: -p, -m, GET_BROKER_CONFIG; loads again
    settings.source("listenPort") -> str                    "default", "broker.conf:12", "command line", "environment X"
    settings.unchangeable_among(keys) -> tuple[str, ...]    keys that a remote update must refuse (NO_PERMISSION)
    settings.update({"fileReservedTime": "48"}) -> Settings  a new object, all or nothing; ConfigError otherwise
    settings.to_json() -> str; SettingValues.from_json(text)     what the broker process hands to workers
    decode_properties(bytes) -> str; parse_properties(text) -> dict[str, str]; format_properties(mapping) -> str
    edit_properties(text, changes) -> str                   a file's text with settings changed and comments kept
    SETTINGS: tuple[Setting, ...]; find(property) -> Setting | None
    mqcore.config.addresses.bridge_warning(address)      what is said of brokerIP1; not imported from here

The broker's command line is ``mqcore.broker.options.parse_arguments(argv)``, which gives the settings and the file that
keeps them (and exits by itself for -h, -p, -m and for errors). To start using a setting that is only accepted so far,
write its row with ``flag``, ``number``, ``text`` or ``choice`` instead of ``unused``, and the field of the same name at
the same place in ``groups.py``; the import fails if the two disagree. Then run ``python -m mqcore.config``, which
writes ``docs/settings.md``.
"""

from typing import TYPE_CHECKING

from mqcore.lazy_names import lazy_names

if TYPE_CHECKING:
    from mqcore.address import Address
    from mqcore.config.choices import BrokerRole, ClientAuth, FlushDiskType, TlsMode
    from mqcore.config.groups import (
        BrokerSettings,
        FailoverSettings,
        MqcoreSettings,
        NamesrvSettings,
        ServerSettings,
        StoreSettings,
        TlsSettings,
    )
    from mqcore.config.index import SETTINGS, find, preferred_spelling, rows_of
    from mqcore.config.loading import load
    from mqcore.config.properties import edit_properties
    from mqcore.config.settings import Settings
    from mqcore.config.table import Group, Kind, Program, Setting, Unit, Value
    from mqcore.config.values import SettingValues
    from mqcore.java_properties import decode_properties, format_properties, parse_properties

__all__ = [
    "SETTINGS",
    "Address",
    "BrokerRole",
    "BrokerSettings",
    "ClientAuth",
    "FailoverSettings",
    "FlushDiskType",
    "Group",
    "Kind",
    "MqcoreSettings",
    "NamesrvSettings",
    "Program",
    "ServerSettings",
    "Setting",
    "SettingValues",
    "Settings",
    "StoreSettings",
    "TlsMode",
    "TlsSettings",
    "Unit",
    "Value",
    "decode_properties",
    "edit_properties",
    "find",
    "format_properties",
    "load",
    "parse_properties",
    "preferred_spelling",
    "rows_of",
]

# A worker takes values and words only: each module comes when one of its names is asked for.
_PLACES = {
    "address": ("Address",),
    "config.choices": ("BrokerRole", "ClientAuth", "FlushDiskType", "TlsMode"),
    "config.groups": tuple(name for name in __all__ if name.endswith("Settings") and name != "Settings"),
    "config.index": ("SETTINGS", "find", "preferred_spelling", "rows_of"),
    "config.loading": ("load",),
    "config.properties": ("edit_properties",),
    "config.settings": ("Settings",),
    "config.table": ("Group", "Kind", "Program", "Setting", "Unit", "Value"),
    "config.values": ("SettingValues",),
    "java_properties": ("decode_properties", "format_properties", "parse_properties"),
}
__getattr__ = lazy_names(globals(), {name: f"mqcore.{place}" for place, names in _PLACES.items() for name in names})
