// Package vppconf writes the startup configuration of a VPP that serves as Weft's dataplane. It sizes VPP for the node
// that it runs on and gives a reason for every line.
package vppconf

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Hugepages that VPP's memory may be on.
const (
	Auto = "auto" // hugepages where enough of them are free, else ordinary pages
	None = "none" // ordinary pages
	Huge = "2M"
	Giga = "1G"
)

// Owners of the node's network card, and the drivers by which VPP reads it.
const (
	Kernel   = "kernel"
	AFPacket = "af_packet"
	AFXDP    = "af_xdp"
	DPDK     = "dpdk"
)

// choose is the value of MainCore and Workers that leaves the choice to New.
const choose = -1

// Limits of VPP and of this page.
const (
	maxWorkers = 254     // VPP: 255 threads with the main one
	maxBuffers = 1 << 21 // 11 GiB of ordinary pages; VPP reserves addresses for 16
	minBuffers = 1 << 12 // below that one burst on a few interfaces takes all
	maxCount   = 1 << 16 // of pods and memifs
)

// Options says what VPP is to do. The zero value is not usable: Flags sets the defaults.
type Options struct {
	MainCore int // a processor by the kernel's number
	Workers  int // threads that forward, each on a processor of its own

	Hugepages string // Auto, None, Huge or Giga
	Buffers   int    // of each NUMA node; 0 = by pods, memifs and workers

	Pods   int // the most that run on the node
	Memifs int // the most that all pods together have

	Uplink     string // Kernel, or the name or PCI address of the network card that VPP gets
	UplinkMode string // AFPacket, AFXDP or DPDK

	RuntimeDir string // VPP's sockets; only root may enter it
	PluginPath string // "" = where VPP was installed to
	Output     string // the file to write; "" = standard output
}

// Flags binds the options.
func (o *Options) Flags(fs *pflag.FlagSet) {
	fs.IntVar(&o.MainCore, "main-core", choose, "processor of VPP's main thread; -1: chosen")
	fs.IntVar(&o.Workers, "workers", choose, "threads that forward, each with a processor of its own; 0: the main thread forwards; -1: by the number of processors")
	fs.StringVar(&o.Hugepages, "hugepages", Auto, "pages of VPP's memory: auto (hugepages where enough are free), none, 2M or 1G")
	fs.IntVar(&o.Buffers, "buffers", 0, "packet buffers of each NUMA node; 0: by pods, memifs and workers")
	fs.IntVar(&o.Pods, "pods", 110, "the most pods on the node")
	fs.IntVar(&o.Memifs, "memifs", 100, "the most memifs on the node")
	fs.StringVar(&o.Uplink, "uplink", Kernel, "who has the node's network card: kernel, or the card's name or PCI address, which VPP gets")
	fs.StringVar(&o.UplinkMode, "uplink-mode", AFPacket, "how VPP reads that card: af_packet, af_xdp or dpdk")
	fs.StringVar(&o.RuntimeDir, "runtime-dir", "/run/vpp", "directory of VPP's sockets")
	fs.StringVar(&o.PluginPath, "plugin-path", "", "directory of VPP's plugins; empty: where VPP was installed to")
	fs.StringVarP(&o.Output, "output", "o", "", "file to write; the runtime directory is restricted to its owner then; empty: print")
}

// Validate reports all that is wrong with the options, by flag.
func (o *Options) Validate() error {
	errs := []error{
		within("main-core", o.MainCore, choose, maxCount), within("workers", o.Workers, choose, maxWorkers),
		within("pods", o.Pods, 0, maxCount), within("memifs", o.Memifs, 0, maxCount),
		oneOf("hugepages", o.Hugepages, Auto, None, Huge, Giga), oneOf("uplink-mode", o.UplinkMode, AFPacket, AFXDP, DPDK),
		oneWord("runtime-dir", o.RuntimeDir),
	}
	if o.Buffers != 0 {
		errs = append(errs, within("buffers", o.Buffers, minBuffers, maxBuffers))
	}
	if o.Uplink == "" || strings.ContainsAny(o.Uplink, " \t\n#{}/") {
		errs = append(errs, fmt.Errorf("--uplink %q is neither kernel nor a network card's name or PCI address", o.Uplink))
	}
	if o.PluginPath != "" {
		errs = append(errs, oneWord("plugin-path", o.PluginPath))
	}
	if o.Output != "" {
		errs = append(errs, oneWord("output", o.Output))
	}
	return errors.Join(errs...)
}

// ownsCard reports whether VPP gets the node's network card by the given mode.
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

// oneWord accepts paths that VPP's parser takes for one word.
func oneWord(flag, value string) error {
	if !filepath.IsAbs(value) || strings.ContainsAny(value, " \t\n#{}") {
		return fmt.Errorf("--%s %q is not an absolute path without spaces, braces and #", flag, value)
	}
	return nil
}
