"""The stacks that gdb finds at each stop of a machine.

In: PORT (the stub) and OUT (a file), set before; the kernel's ELF file is loaded. Out: a line for each stop and each
vCPU that is not halted: number of the stop from 1, number of the vCPU, and from the sampled instruction to the
outermost frame each address with `:` and the name of its function, as gdb has them; `?` is a frame without debug
information. Frames of inlined functions are left out, because they have no address of their own. Runs in gdb, until
the connection ends.
"""

import gdb

MOST_FRAMES = 128
SETTINGS = [
    "pagination off",
    "confirm off",
    "auto-solib-add off",
    "backtrace past-main on",
    "backtrace past-entry on",
    "remote multiprocess-feature-packet off",
    "remotetimeout 600",
    "tcp connect-timeout 600",
    "trust-readonly-sections off",
]


def frames():
    """The frames of the selected thread; only the first one if it is not in the file's code."""
    found = []
    frame = gdb.newest_frame()
    is_known = not gdb.execute(f"info symbol {frame.pc()}", to_string=True).startswith("No symbol")
    function = None
    try:
        while frame is not None and len(found) < MOST_FRAMES:
            # The inlined functions of a frame come before the frame itself, which has the same address.
            function = frame.function()
            if frame.type() != gdb.INLINE_FRAME:
                name = str(function).replace(" ", "") if function is not None else "?"
                # gdb has a last frame at address 0 where a stack begins with a return address of 0.
                if frame.pc() != 0:
                    found.append(f"{frame.pc():x}:{name}")
                if not is_known:
                    break
            frame = frame.older()
    except gdb.error:
        # Memory that cannot be read, or a stack that gdb takes for damaged: it goes no further.
        pass
    return found


def ask(packet):
    """The answer of the stub."""
    return gdb.selected_inferior().connection.send_packet(packet) or b""


def is_halted(thread):
    """What the stub says of a vCPU. gdb itself asks only once."""
    return b"halted" in bytes.fromhex(ask(f"qThreadExtraInfo,{thread.ptid[1]:x}").decode())


def select(thread):
    """Selects a vCPU. The sampler has selected others, of which gdb does not know."""
    thread.switch()
    ask(f"Hg{thread.ptid[1]:x}")
    gdb.execute("maintenance flush register-cache", to_string=True)


def main():
    for setting in SETTINGS:
        gdb.execute(f"set {setting}")
    stop = 0
    with open(OUT, "w", encoding="utf-8") as out:
        gdb.execute(f"target remote 127.0.0.1:{PORT}", to_string=True)
        while True:
            # The first stop is before the sampler begins.
            gdb.execute("continue", to_string=True)
            stop += 1
            for thread in sorted(gdb.selected_inferior().threads(), key=lambda thread: thread.num):
                if not is_halted(thread):
                    select(thread)
                    print(stop, thread.ptid[1] - 1, " ".join(frames()), file=out, flush=True)


try:
    main()
except gdb.error as error:
    # The machine has ended, or nothing more is wanted of it.
    print(f"gdb: {error}")
