"""Reads an export with another tool and prints what is in it as JSON: DuckDB for tables, the published schema for
Perfetto, Python's own parser for Chrome's JSON.

Usage: read_back.py FORMAT PATH…    FORMAT: perfetto | chrome | parquet | csv | ndjson; or query SQL PATH
"""

import collections
import json
import sys


def table(read):
    import duckdb

    ask = duckdb.connect().execute
    ask(f"create table records as from {read}")
    read = "records"
    found = {"rows": ask(f"select count(*) from {read}").fetchone()[0]}
    for key in ("kind", "class"):
        found[key] = dict(ask(f"select {key}, count(*) from {read} group by all").fetchall())
    found["names"] = [name for name, in ask(f"select distinct mangled from {read} where mangled is not null").fetchall()]
    found["busy_ns"] = int(ask(f"select coalesce(sum(duration_ns), 0) from {read}").fetchone()[0])
    found["first"] = ask(f"select min(start_ns)::bigint from {read}").fetchone()[0]
    found["bytes"] = int(ask(f"select coalesce(sum(bytes), 0) from {read} where class = 'valid'").fetchone()[0])
    return found


def unknown_fields(message):
    """The fields that the schema does not know, anywhere in a message."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    found = [(message.DESCRIPTOR.name, field.field_number) for field in UnknownFieldSet(message)]
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            repeated = value if not hasattr(value, "ListFields") else [value]
            for one in repeated:
                found += unknown_fields(one)
    return found


def perfetto(paths):
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

    events = schema.TrackEvent
    kinds, invalid, counters = collections.Counter(), collections.Counter(), collections.Counter()
    names, unknown, busy, first, largest, nested, total = set(), [], 0, None, 0, 0, 0
    tracks_named = set()
    for path in paths:
        with open(path, "rb") as file:
            trace = schema.Trace.FromString(file.read())
        tables = collections.defaultdict(dict)
        tracks, happened = {}, collections.defaultdict(list)
        for number, packet in enumerate(trace.packet):
            if number % 97 == 0 or not packet.HasField("track_event"):
                unknown += unknown_fields(packet)
            interned = packet.interned_data
            for field in ("event_names", "event_categories", "debug_annotation_names"):
                tables[field].update((one.iid, one.name) for one in getattr(interned, field))
            for one in interned.debug_annotation_string_values:
                tables["strings"][one.iid] = one.str.decode()
            for one in packet.trace_attributes.attribute:
                if one.key.startswith("gtop.invalid."):
                    _, _, cls, rest = one.key.split(".", 3)
                    invalid[cls] += one.long_value
                    kinds[rest.split(" ")[0]] += one.long_value
            if packet.HasField("track_descriptor"):
                tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            if packet.HasField("track_event"):
                event = packet.track_event
                assert event.track_uuid in tracks, event
                happened[event.track_uuid].append((packet.timestamp, event))
        for uuid, list_ in happened.items():
            path_, at = [], tracks[uuid]
            while True:
                path_.append(at.process.process_name or at.name)
                if at.parent_uuid == 0:
                    break
                at = tracks[at.parent_uuid]
            tracks_named.add(" / ".join(reversed(path_)))
            open_ = []
            for at, event in sorted(list_, key=lambda one: one[0]):
                if event.type == events.TYPE_COUNTER:
                    counters[tracks[uuid].name] += 1
                    continue
                if event.type == events.TYPE_SLICE_END:
                    begun, event = open_.pop()
                    busy += at - begun
                    continue
                nested += len(open_)
                if event.type == events.TYPE_SLICE_BEGIN:
                    open_.append((at, event))
                kinds[tables["event_categories"][event.category_iids[0]]] += 1
                first = at if first is None else min(first, at)
                said = {tables["debug_annotation_names"][one.name_iid]: one for one in event.debug_annotations}
                if "mangled" in said:
                    names.add(tables["strings"][said["mangled"].string_value_iid])
                elif tables["event_categories"][event.category_iids[0]] == "kernel":
                    # A kernel that nobody named is called so.
                    names.update({tables["event_names"][event.name_iid]} - {"unknown"})
                total += said["bytes"].uint_value if "bytes" in said else 0
            assert not open_, "a slice that does not end"
    valid = sum(kinds.values()) - sum(invalid.values())
    return {
        "rows": sum(kinds.values()), "kind": kinds, "class": {**invalid, "valid": valid}, "names": sorted(names),
        "busy_ns": busy, "first": first, "bytes": total, "unknown": unknown, "nested": nested,
        "counters": counters, "tracks": sorted(tracks_named),
    }


def chrome(paths):
    kinds, classes, counters = collections.Counter(), collections.Counter(), collections.Counter()
    names, busy, first, overlaps, total = set(), 0, None, 0, 0
    for path in paths:
        with open(path, encoding="utf-8") as file:
            trace = json.load(file)
        origin = int(trace["otherData"]["origin_ns"])
        rows = collections.defaultdict(list)
        for event in trace["traceEvents"]:
            if event["ph"] == "C":
                counters[event["name"]] += 1
            elif event["name"] == "invalid_record" and event["ph"] == "M":
                assert "ts" not in event
                kinds[event["cat"]] += 1
                classes[event["args"]["class"]] += 1
            elif event["ph"] in "Xi":
                kinds[event["cat"]] += 1
                classes["valid"] += 1
                start = round(event["ts"] * 1000)
                length = round(event.get("dur", 0) * 1000)
                busy += length
                total += event["args"].get("bytes", 0)
                first = start + origin if first is None else min(first, start + origin)
                rows[event["pid"], event["tid"]].append((start, start + length))
                if event["cat"] == "kernel" and event["name"] != "unknown":
                    names.add(event["args"].get("mangled", event["name"]))
        for spans in rows.values():
            spans.sort()
            overlaps += sum(one[1] > other[0] for one, other in zip(spans, spans[1:]))
    return {
        "rows": sum(kinds.values()), "kind": kinds, "class": classes, "names": sorted(names), "busy_ns": busy,
        "first": first, "bytes": total, "overlaps": overlaps, "counters": counters,
    }


def query(sql, folder):
    import duckdb

    return duckdb.connect().execute(sql.replace("FLEET", folder)).fetchall()


def main():
    what, paths = sys.argv[1], sys.argv[2:]
    if what == "query":
        found = query(*paths)
    elif what in ("perfetto", "chrome"):
        found = {"perfetto": perfetto, "chrome": chrome}[what](paths)
    else:
        list_ = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
        read = {
            "parquet": f"read_parquet([{list_}])",
            "csv": f"read_csv([{list_}], header = true, delim = ',', quote = '\"', escape = '\"', sample_size = -1)",
            "ndjson": f"read_ndjson([{list_}], sample_size = -1)",
        }[what]
        found = table(read)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
