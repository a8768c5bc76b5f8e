package operations

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// LogLevel is the level of the agent's log. Operators can change it until the agent ends, or for some time.
type LogLevel struct {
	slog.LevelVar

	configured slog.Level

	mu    sync.Mutex
	timer *time.Timer // resets the level, or nil
	until time.Time
}

// NewLogLevel returns a level with a configured name. Unknown names, which the validation of the configuration refuses,
// are "info".
func NewLogLevel(name string) *LogLevel {
	l := &LogLevel{}
	if err := l.configured.UnmarshalText([]byte(name)); err != nil {
		l.configured = slog.LevelInfo
	}
	l.Set(l.configured)
	return l
}

// Change sets the level. After the duration, if it is not 0, the level is the configured one again.
func (l *LogLevel) Change(level slog.Level, duration time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	l.Set(level)
	l.timer = nil
	l.until = time.Time{}
	if duration <= 0 {
		return
	}
	l.until = time.Now().Add(duration)
	l.timer = time.AfterFunc(duration, func() { l.reset(level) })
}

// reset returns to the configured level, unless another change has replaced the one to level.
func (l *LogLevel) reset(level slog.Level) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Level() == level && !l.until.IsZero() && !time.Now().Before(l.until) {
		l.Set(l.configured)
		l.timer = nil
		l.until = time.Time{}
	}
}

// Until returns when the configured level returns; zero if it does not.
func (l *LogLevel) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// LogLevel returns the level of the agent's log, after a change if the request has a level.
func (o *Server) LogLevel(_ context.Context, req *operatorv1.LogLevelRequest) (*operatorv1.LogLevelReply, error) {
	l := o.config.LogLevel
	if req.Level != "" {
		var level slog.Level
		if err := level.UnmarshalText([]byte(req.Level)); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "invalid log level %q: must be debug, info, warn or error",
				req.Level)
		}
		if req.For.AsDuration() < 0 {
			return nil, status.Error(codes.InvalidArgument, "the duration is negative")
		}
		l.Change(level, req.For.AsDuration())
	}
	return &operatorv1.LogLevelReply{
		Level:      levelName(l.Level()),
		Configured: levelName(l.configured),
		Until:      stamp(l.Until()),
	}, nil
}

func levelName(level slog.Level) string {
	for name, known := range map[string]slog.Level{
		"debug": slog.LevelDebug,
		"info":  slog.LevelInfo,
		"warn":  slog.LevelWarn,
		"error": slog.LevelError,
	} {
		if level == known {
			return name
		}
	}
	return level.String()
}

// Audit audits all kinds now.
func (o *Server) Audit(ctx context.Context, _ *operatorv1.AuditRequest) (*operatorv1.AuditReply, error) {
	audit, err := o.config.Drift.Now(ctx)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	reply := &operatorv1.AuditReply{Objects: uint32(audit.Objects), Repaired: audit.Repaired, Error: textOf(audit.Err)}
	of := o.config.Owners.Now()
	for _, f := range audit.Found {
		reply.Found = append(reply.Found, &operatorv1.Drift{Ref: f.Ref, Text: f.Text, Owners: ownersOf(of.Of(f.Ref))})
	}
	return reply, nil
}
