# From a recording in a Redox image to a flame graph: one command, in the folder of the Redox build system, QEMU ended:
#   make -f Makefile -f .../kernel-integration/ports/redox/flamegraph.mk kprof-flamegraph
# The kernel's ELF names inlined functions too; the TSC's frequency stands in the file (or give KPROF_GHZ).

KPROF_FOLD ?= kprof-fold
KPROF_KERNEL ?= recipes/core/profiling-kernel/target/$(TARGET)/build/kernel.all
KPROF_RECORDING ?= build/$(ARCH)/$(CONFIG_NAME)/filesystem/root/profiling.txt
KPROF_SVG ?= build/flamegraph/$(TARGET)-$(CONFIG_NAME)-kprof.svg
KPROF_GHZ ?=

# The recording is copied out first, so that the image is not mounted a moment longer than needed.
.PHONY: kprof-flamegraph
kprof-flamegraph:
	mkdir -p $(dir $(KPROF_SVG))
	$(MAKE) mount
	cp $(KPROF_RECORDING) $(KPROF_SVG:.svg=.txt) ; status=$$? ; $(MAKE) unmount && exit $$status
	$(KPROF_FOLD) flamegraph $(KPROF_SVG:.svg=.txt) $(KPROF_KERNEL) $(KPROF_GHZ) > $(KPROF_SVG) \
	    || { rm -f $(KPROF_SVG); exit 1; }
	@echo "$(KPROF_SVG)"
