// Package vppconf writes the startup configuration of a VPP that serves as Weft's dataplane. It sizes VPP for the node
// and gives a reason for every line.
package vppconf

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Page sizes of VPP's memory.
const (
	Auto = "auto" // hugepages if enough of them are free, else ordinary pages
	None = "none" // ordinary pages
	Huge = "2M"
	Giga = "1G"
)

// Kernel is the value of --uplink if the kernel keeps the network card. The others are VPP's drivers for the card.
const (
	Kernel   = "kernel"
	AFPacket = "af_packet"
	AFXDP    = "af_xdp"
	DPDK     = "dpdk"
)

// choose is the value of MainCore and Workers with which New chooses.
const choose = -1

// Limits of the options.
const (
	maxWorkers = 254     // VPP: 255 threads with the main one
	maxBuffers = 1 << 21 // 11 GiB of ordinary pages; VPP reserves 16 GiB of address space
	minBuffers = 1 << 12 // one burst on a few interfaces exhausts fewer
	maxCount   = 1 << 16 // of pods and memifs
)

// Options are the settings of vpp-config. The zero value is not usable: Flags sets the defaults.
type Options struct {
	MainCore int // processor number of the main thread
	Workers  int // forwarding threads, each on a processor of its own

	Hugepages string // Auto, None, Huge or Giga
	Buffers   int    // of each NUMA node; 0 = by pods, memifs and workers

	Pods   int // maximum on the node
	Memifs int // maximum on the node

	Uplink     string // Kernel, or the name or PCI address of VPP's network card
	UplinkMode string // AFPacket, AFXDP or DPDK

	RuntimeDir string // of VPP's sockets; only root may enter it
	PluginPath string // "" = VPP's default
	Output     string // file; "" = standard output
}

// Flags binds the options to flags and sets the defaults.
func (o *Options) Flags(fs *pflag.FlagSet) {
	fs.IntVar(&o.MainCore, "main-core", choose, "processor of VPP's main thread; -1: automatic")
	fs.IntVar(&o.Workers, "workers", choose,
		"forwarding threads, each on a processor of its own; 0: the main thread forwards; -1: by the number of processors")
	fs.StringVar(&o.Hugepages, "hugepages", Auto,
		"pages of VPP's memory: auto (hugepages if enough are free), none, 2M or 1G")
	fs.IntVar(&o.Buffers, "buffers", 0, "packet buffers of each NUMA node; 0: by pods, memifs and workers")
	fs.IntVar(&o.Pods, "pods", 110, "maximum number of pods on the node")
	fs.IntVar(&o.Memifs, "memifs", 100, "maximum number of memifs on the node")
	fs.StringVar(&o.Uplink, "uplink", Kernel,
		"owner of the node's network card: kernel, or for VPP the name or PCI address of the card")
	fs.StringVar(&o.UplinkMode, "uplink-mode", AFPacket, "VPP's driver for that card: af_packet, af_xdp or dpdk")
	fs.StringVar(&o.RuntimeDir, "runtime-dir", "/run/vpp", "directory of VPP's sockets")
	fs.StringVar(&o.PluginPath, "plugin-path", "", "directory of VPP's plugins; empty: VPP's default")
	fs.StringVarP(&o.Output, "output", "o", "",
		"output file; also restricts the runtime directory to its owner; empty: print")
}

// Validate reports every invalid option with its flag.
func (o *Options) Validate() error {
	errs := []error{
		within("main-core", o.MainCore, choose, maxCount), within("workers", o.Workers, choose, maxWorkers),
		within("pods", o.Pods, 0, maxCount), within("memifs", o.Memifs, 0, maxCount),
		oneOf("hugepages", o.Hugepages, Auto, None, Huge, Giga),
		oneOf("uplink-mode", o.UplinkMode, AFPacket, AFXDP, DPDK),
		oneWord("runtime-dir", o.RuntimeDir),
	}
	if o.Buffers != 0 {
		errs = append(errs, within("buffers", o.Buffers, minBuffers, maxBuffers))
	}
	if o.Uplink == "" || strings.ContainsAny(o.Uplink, " \t\n#{}/") {
		errs = append(errs,
			fmt.Errorf("--uplink %q is neither kernel nor a network card's name or PCI address", o.Uplink))
	}
	if o.PluginPath != "" {
		errs = append(errs, oneWord("plugin-path", o.PluginPath))
	}
	if o.Output != "" {
		errs = append(errs, oneWord("output", o.Output))
	}
	return errors.Join(errs...)
}

// ownsCard reports whether VPP owns the node's network card by the given mode.
func (o *Options) ownsCard(mode string) bool { return o.Uplink != Kernel && o.UplinkMode == mode }

func within(flag string, n, least, most int) error {
	if n < least || n > most {
		return fmt.Errorf("--%s %d is not within %d and %d", flag, n, least, most)
	}
	return nil
}

func oneOf(flag, value string, allowed ...string) error {
	if !slices.Contains(allowed, value) {
		return fmt.Errorf("--%s %q is not one of %s", flag, value, strings.Join(allowed, ", "))
	}
	return nil
}

// oneWord accepts absolute paths that are one word for VPP's parser.
func oneWord(flag, value string) error {
	if !filepath.IsAbs(value) || strings.ContainsAny(value, " \t\n#{}") {
		return fmt.Errorf("--%s %q is not an absolute path without spaces, braces and #", flag, value)
	}
	return nil
}
