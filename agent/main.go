package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/internal/line"
	"github.com/weftnet/weft/internal/version"
)

// Main runs an agent until ctx ends, with its log on out.
func Main(ctx context.Context, c config.Config, out io.Writer) error {
	log := newLog(c.Log, out)
	log.Info("agent starting", "version", version.String(), "dataplane", c.Dataplane.Type)
	if err := openSettings(settings); err != nil {
		log.Warn("settings of the kernel cannot be written", "err", err)
	}
	a, err := New(ctx, c, log)
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		log.Info("agent stopped before it had started")
		return nil
	case err != nil:
		return err
	}
	return errors.Join(a.Run(ctx), a.Close())
}

func newLog(c config.Log, out io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: line.Attr}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(out, opts))
	}
	return slog.New(slog.NewTextHandler(out, opts))
}
