package install

import (
	"strings"
	"testing"
	"time"
)

func TestWrongOptionsAreNamedByTheirFlag(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Options)
		why    string // "" = nothing is wrong
	}{
		{"the defaults", func(*Options) {}, ""},
		{"a relative directory", func(o *Options) { o.BinDir = "bin" }, `--bin-dir "bin" is not an absolute path`},
		{"a name with a directory", func(o *Options) { o.ConfName = "a/b.conflist" }, "--conf-name"},
		{"a name that runtimes do not read", func(o *Options) { o.ConfName = "10-weft.json" }, "--conf-name"},
		{"a hidden name", func(o *Options) { o.ConfName = ".weft.conflist" }, "--conf-name"},
		{"an unknown mode", func(o *Options) { o.Mode = "main" }, `--mode "main" is not one of primary, chained, delegate`},
		{"an extension in another mode", func(o *Options) { o.Extend = "/etc/x.conflist" }, "--extend goes with --mode chained"},
		{"an extension of what is no list", chainedTo("/etc/x.conf"), "--extend /etc/x.conf: only a .conflist"},
		{"an extension", chainedTo("/etc/x.conflist"), ""},
		{"alone behind another", func(o *Options) { chainedTo("/etc/x.conflist")(o); o.Exclusive = true }, "--exclusive goes with --mode primary"},
		{"no versions", func(o *Options) { o.Versions = nil }, "--cni-versions: at least one"},
		{"a version that no list can have", func(o *Options) { o.Versions = []string{"0.2.0"} }, `--cni-versions: "0.2.0"`},
		{"a plugin with a path", func(o *Options) { o.Behind = []string{"../sh"} }, "--behind"},
		{"a plugin that cannot limit", func(o *Options) { o.Behind = []string{"portmap", "bandwidth"} }, "bandwidth cannot limit pods of Weft"},
		{"Weft behind itself", func(o *Options) { o.Behind = []string{"weft-cni"} }, "--behind"},
		{"a level that is none", func(o *Options) { o.LogLevel = "loud" }, "--cni-log-level"},
		{"a relative log", func(o *Options) { o.LogFile = "log" }, "--cni-log-file"},
		{"a negative time", func(o *Options) { o.Wait = -time.Second }, "--wait -1s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := newNode(t).options()
			tt.change(&o)
			err := o.ValidateInstall()
			if (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), tt.why) {
				t.Errorf("error %v, want %q", err, tt.why)
			}
		})
	}
}
