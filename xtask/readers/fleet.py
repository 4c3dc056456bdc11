"""Runs the queries of docs/fleet.md, or decodes OpenTelemetry's profiles, and compares the results with what report and
folded say.

In: the engine (duckdb or spark) or `otlp`, the page, the folder with `fleet/` (tables) and `texts/` (what kprof-fold
printed). Out: a line for each query: `ok NAME` or `FAILED NAME: WHY`.
"""

import json
import os
import re
import sys
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

engine, page, folder = sys.argv[1:]
page = Path(page).read_text()
os.chdir(folder)

blocks = re.findall(r"^```(\w+)(?: (\w+))?\n(.*?)^```", page, re.M | re.S)
setup = {name: text for _, name, text in blocks if name}
queries = re.findall(r"^### (\d+)\. ([^\n]*)\n.*?^```sql\n(.*?)^```", page, re.M | re.S)


def folded(file):
    rows = Counter()
    for line in file.read_text().splitlines():
        stack, count = line.rsplit(" ", 1)
        rows[tuple(stack.split(";"))] += int(count)
    return rows


class Profile:
    def __init__(self, texts):
        self.machine, self.build = (texts / "about").read_text().split()
        self.functions = {}
        for line in (texts / "report").read_text().split("By total time")[0].splitlines():
            row = re.match(r" *[\d.]+ +[\d.]+ +(\d+) +(\d+)  (.*)", line)
            if row:
                self.functions[row[3]] = (int(row[1]), int(row[2]))
        self.stacks = folded(texts / "folded")
        self.weight = sum(self.stacks.values())
        self.lost = self.stacks.get(("[lost]",), 0)
        self.tasks = folded(texts / "task")
        self.cpus = [folded(texts / f"cpu-{cpu}") for cpu in range(2)]
        # Where all the time of each CPU went, in ticks.
        of_cpu = [json.loads((texts / f"report-{cpu}.json").read_text())["time"] for cpu in range(2)]
        self.time = [{row["what"]: row["ticks"] for row in rows} for rows in of_cpu]
        self.seconds = [folded(texts / f"second-{second}") for second in range(4)]
        # What `folded --event` says: by weight and by number.
        has_hits = (texts / "hits").exists()
        self.hits, self.hit_counts = [folded(texts / name) if has_hits else {} for name in ("hits", "hits-count")]


profiles = [Profile(texts) for texts in sorted(Path("texts").iterdir())]
with_hits = [profile for profile in profiles if profile.hits]


def by(key, value):
    sums = Counter()
    for profile in profiles:
        for one, count in value(profile):
            sums[(key(profile), one) if key else one] += count
    return sums


def ordered(rows):
    """Descending by the last column, then by the others."""
    return sorted(rows, key=lambda row: (-row[-1], row[:-1]))


def percents(key, part):
    parts, whole = Counter(), Counter()
    for profile in profiles:
        whole[key(profile)] += profile.weight
        parts[key(profile)] += part(profile)
    return {one: Fraction(parts[one] * 100, whole[one]) for one in whole}


def self_times(profile):
    return [(name, own) for name, (own, _) in profile.functions.items() if own]


def grown():
    own, whole = Counter(), Counter()
    for profile in profiles:
        whole[profile.machine, profile.build] += profile.weight
        for name, count in self_times(profile):
            own[profile.machine, profile.build, name] += count
    rows = []
    for (machine, build, name), count in own.items():
        if build == "b2":
            before = Fraction(own[machine, "b1", name] * 100, whole[machine, "b1"])
            change = Fraction(count * 100, whole[machine, "b2"]) - before
            if change > 0:
                rows.append((machine, name, change))
    return ordered(rows)


def tail():
    shares = defaultdict(list)
    for profile in profiles:
        under = sum(count for stack, count in profile.stacks.items() if "sys_read" in stack)
        shares[profile.build].append(Fraction(under * 100, profile.weight))
    rows = []
    for build, found in sorted(shares.items()):
        found.sort()
        at = Fraction(99, 100) * (len(found) - 1)
        low = found[int(at)]
        rows.append((build, low + (at - int(at)) * (found[min(int(at) + 1, len(found) - 1)] - low)))
    return rows


def callers():
    found = Counter()
    for profile in profiles:
        for stack, count in profile.stacks.items():
            for caller in {above for above, callee in zip(stack, stack[1:]) if callee == "alloc"}:
                found[caller] += count
    return ordered(found.items())


def task_times():
    found = Counter()
    for profile in profiles:
        for stack, count in profile.tasks.items():
            if stack != ("[lost]",):
                found[stack[0]] += count
    return ordered(found.items())


def of_all_time(key, what):
    """The share of ticks of this kind, by `report`. `key` has a profile and a CPU."""
    parts, whole = Counter(), Counter()
    for profile in profiles:
        for cpu, ticks in enumerate(profile.time):
            parts[key(profile, cpu)] += ticks[what]
            whole[key(profile, cpu)] += sum(ticks.values())
    return [(*one, Fraction(parts[one] * 100, whole[one])) for one in whole]


def seconds():
    found = Counter()
    for profile in profiles:
        for second, stacks in enumerate(profile.seconds):
            found[second] += sum(count for stack, count in stacks.items() if "compact" in stack)
    return sorted((second, count) for second, count in found.items() if count)


def hits_by_function():
    found = Counter()
    for profile in with_hits:
        for stack, weight in profile.hits.items():
            found[stack[-1]] += weight
    return ordered(found.items())


def mean_of_hits():
    weights, counts = Counter(), Counter()
    for profile in with_hits:
        weights[profile.machine] += sum(profile.hits.values())
        counts[profile.machine] += sum(profile.hit_counts.values())
    return ordered((machine, Fraction(weights[machine], counts[machine])) for machine in weights)


def unknown_hits():
    unknown, whole = Counter(), Counter()
    for profile in with_hits:
        whole[profile.machine] += sum(profile.hits.values())
        unknown[profile.machine] += sum(profile.hits.get((name,), 0) for name in ("[lost]", "[not recorded]"))
    return ordered((machine, Fraction(unknown[machine] * 100, whole[machine])) for machine in whole)


expected = {
    1: lambda: ordered(by(None, self_times).items()),
    2: lambda: ordered(by(None, lambda one: [(name, all) for name, (_, all) in one.functions.items()]).items()),
    3: grown,
    4: tail,
    5: lambda: ordered(percents(lambda one: one.machine, lambda one: one.lost).items()),
    6: lambda: sorted(of_all_time(lambda one, cpu: (one.build,), "kernel, interrupts off")),
    7: callers,
    8: task_times,
    9: lambda: ordered(of_all_time(lambda one, cpu: (one.machine, cpu), "interrupt or exception")),
    10: seconds,
    11: hits_by_function,
    12: mean_of_hits,
    13: unknown_hits,
}


def engine_of(name):
    if name == "duckdb":
        import duckdb

        connection = duckdb.connect()
        connection.execute(setup["duckdb"])
        connection.execute(setup["hits_duckdb"])
        return lambda sql: connection.execute(sql).fetchall()
    from pyspark.sql import SparkSession

    # Two executors, each a process of its own, as on two machines.
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "4").config("spark.driver.host", "127.0.0.1")
    # Its progress would be in the middle of the lines that are printed here.
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.executor.memory", "512m").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    exec(setup["spark"], {"spark": spark})
    exec(setup["hits_spark"], {"spark": spark})
    # The files are read once, not by each query: hundreds of small ones take most of the time.
    for view in ["samples", "ticks", "stacks", "frames"]:
        spark.table(view).coalesce(2).persist().createOrReplaceTempView(view)
    return lambda sql: [tuple(row) for row in spark.sql(sql.strip().rstrip(";")).collect()]


def differs(is_, must):
    if len(is_) != len(must):
        return f"{len(is_)} rows, by report and folded {len(must)}"
    # Rows whose last column is equal but for rounding may come in either order.
    is_, must = sorted(is_, key=lambda row: row[:-1]), sorted(must, key=lambda row: row[:-1])
    for at, (one, other) in enumerate(zip(is_, must)):
        for a, b in zip(one, other):
            same = a == b if isinstance(b, str) else abs(Fraction(a) - b) < Fraction(1, 10**6)
            if not same or len(one) != len(other):
                return f"row {at} is {one}, by report and folded {tuple(map(lambda c: c if isinstance(c, str) else float(c), other))}"
    return None


def decoded(file):
    """A message by OpenTelemetry's own package: for each profile its type and unit, and for each sample its CPU, its
    task, its stack and its value. What has no CPU or no task has None."""
    from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData

    data = ProfilesData.FromString(file.read_bytes())
    tables = data.dictionary
    text = tables.string_table

    def attributes(sample):
        all = [tables.attribute_table[at] for at in sample.attribute_indices]
        return {text[one.key_strindex]: one.value.string_value or one.value.int_value for one in all}

    def frames(sample):
        stack = tables.stack_table[sample.stack_index].location_indices
        lines = [line for at in stack for line in tables.location_table[at].lines]
        return tuple(text[tables.function_table[line.function_index].name_strindex] for line in reversed(lines))

    for resource in data.resource_profiles:
        for profile in resource.scope_profiles[0].profiles:
            kind = (text[profile.sample_type.type_strindex], text[profile.sample_type.unit_strindex])
            for sample in profile.samples:
                about = attributes(sample)
                place = (about.get("cpu.logical_number"), about.get("thread.name"))
                yield kind, *place, frames(sample), sample.values[0]


def otlp():
    """The stacks of each CPU and task with their counts, and the hits with their weights and numbers."""
    for texts in sorted(Path("texts").iterdir()):
        cpus, tasks = [Counter(), Counter()], Counter()
        for kind, cpu, task, stack, value in decoded(texts / "otlp"):
            if kind != ("samples", "count"):
                return f"{texts}: the values are {kind}"
            cpus[cpu][stack] += value
            tasks[(task, *stack) if task else stack] += value
        must = [folded(texts / f"cpu-{cpu}") for cpu in range(2)] + [folded(texts / "task")]
        if cpus + [tasks] != must:
            return f"{texts}: {cpus + [tasks]}, by folded {must}"
        if not (texts / "hits").exists():
            continue
        found = defaultdict(Counter)
        for kind, cpu, task, stack, value in decoded(texts / "hits-otlp"):
            if (task is None) != (stack in [("[lost]",), ("[not recorded]",)]):
                return f"{texts}: {stack} is of the task {task}"
            found[kind][stack] += value
            if kind == ("block.read", "nanoseconds") and cpu is not None:
                found[cpu][stack] += value
        must = {("block.read", "nanoseconds"): folded(texts / "hits"), ("hits", "count"): folded(texts / "hits-count")}
        must |= {cpu: folded(texts / f"hits-cpu-{cpu}") for cpu in range(2)}
        if found != must:
            return f"{texts}: {dict(found)}, by folded {must}"
    return None


if engine == "otlp":
    why = otlp()
    print(f"FAILED OpenTelemetry's package: {why}"[:2000] if why else "ok OpenTelemetry's package decodes every profile")
    sys.exit()
if len(queries) != len(expected):
    sys.exit(f"{len(queries)} queries in the page, {len(expected)} are known here")
run = engine_of(engine)
for number, title, sql in queries:
    must = expected[int(number)]()
    if not must:
        sys.exit(f"query {number} has no rows, so it proves nothing")
    why = differs(run(sql), must)
    print(f"FAILED {engine}, {title}: {why}" if why else f"ok {engine}, {title}", flush=True)
