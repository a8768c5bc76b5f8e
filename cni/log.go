package cni

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/weftnet/weft/internal/line"
)

// Limits of the log: a plugin that fails in a loop must not fill the disk.
const (
	logMegabytes = 10
	logBackups   = 3
)

// log is the log file of the configuration; without a log file it discards everything.
type log struct {
	*slog.Logger
	file *lumberjack.Logger // nil without a log file
}

func openLog(c *conf) *log {
	if c.LogFile == "" {
		return &log{Logger: slog.New(slog.DiscardHandler)}
	}
	file := &lumberjack.Logger{Filename: c.LogFile, MaxSize: logMegabytes, MaxBackups: logBackups}
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		level = slog.LevelInfo
	}
	return &log{slog.New(slog.NewTextHandler(file, &slog.HandlerOptions{Level: level, ReplaceAttr: line.Attr})), file}
}

func (l *log) close() {
	if l.file != nil {
		_ = l.file.Close()
		trim(l.file.Filename)
	}
}

// rotated is the time format in lumberjack's names of rotated files.
const rotated = "2006-01-02T15-04-05.000"

// trim removes the oldest rotated files. The library does so in the background, and this process may end before.
func trim(path string) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return
	}
	extension := filepath.Ext(path)
	stem := strings.TrimSuffix(filepath.Base(path), extension) + "-"
	var old []string // oldest first, as their names are in order
	for _, e := range entries {
		stamp, ours := strings.CutPrefix(strings.TrimSuffix(e.Name(), extension), stem)
		if _, err := time.Parse(rotated, stamp); ours && err == nil {
			old = append(old, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	for _, name := range old[:max(0, len(old)-logBackups)] {
		_ = os.Remove(name) // another process may have removed it
	}
}

// logCall logs the outcome of a call. It does not log stdin, which contains annotations.
func (l *log) logCall(c *call, took time.Duration, err error) {
	attributes := []any{
		"verb", c.command, "network", c.key().network(), "container", c.ContainerID, "interface", c.IfName,
		"netns", c.Netns, "took", took.Round(time.Microsecond),
	}
	if err != nil {
		l.Warn("call failed", append(attributes, "err", err)...)
		return
	}
	l.Info("call served", attributes...)
}

// validateLogFile rejects devices and pipes: /dev/stdout would mix the log with the result.
func validateLogFile(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink {
		return fmt.Errorf("logFile %q is not a regular file", path)
	}
	return nil
}
