package podmanager

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Right after an ADD the machine may still be on its way to what was promised.
const (
	convergence = time.Second
	checkEvery  = 100 * time.Millisecond
)

// Check compares what the runtime remembers, the kernel and the dataplane with the attachment.
func (m *Manager) Check(ctx context.Context, req *weftv1.CheckRequest) (*weftv1.CheckReply, error) {
	if err := m.check(ctx, req); err != nil {
		return &weftv1.CheckReply{Error: replyError(err, nil)}, nil
	}
	return &weftv1.CheckReply{}, nil
}

func (m *Manager) check(ctx context.Context, req *weftv1.CheckRequest) error {
	if err := m.admit(req.GetCaller()); err != nil {
		return err
	}
	key, err := keyOf(req.GetAttachment())
	if err != nil {
		return err
	}
	a, ok := m.Attachment(key)
	if !ok {
		return pod.Errorf(pod.CodeRefused, "check %s: no such attachment here: delete the sandbox and add it again", key)
	}
	differences := append(m.compareNetns(ctx, &a, req.GetNetns()), compare(&a, req)...)
	if len(differences) == 0 {
		differences, err = m.verify(ctx, &a, req)
	}
	switch {
	case err != nil:
		return pod.Errorf(checkCode(err), "check %s: %w", a.Name(), err)
	case len(differences) > 0:
		return pod.Errorf(pod.CodeRefused, "check %s: differs from what was promised: %s", a.Name(), strings.Join(differences, "; "))
	}
	return nil
}

func checkCode(err error) uint {
	if errors.Is(err, context.DeadlineExceeded) {
		return pod.CodeTimeout
	}
	return pod.CodeRefused
}

func (m *Manager) compareNetns(ctx context.Context, a *pod.Attachment, path string) []string {
	netns, err := m.config.Inspect(ctx, path)
	if err != nil {
		return []string{"network namespace: " + err.Error()}
	}
	if netns.Inode != a.Netns.Inode || netns.Device != a.Netns.Device {
		return []string{"network namespace: " + path + " is not the one that was wired"}
	}
	return nil
}

// verify asks until there is no difference, or the time for convergence is over.
func (m *Manager) verify(ctx context.Context, a *pod.Attachment, req *weftv1.CheckRequest) ([]string, error) {
	r := rememberedOf(a, req, m.config.Later(a))
	enough := time.NewTimer(convergence)
	defer enough.Stop()
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		differences, err := m.verifyOnce(ctx, r)
		if len(differences) == 0 && err == nil {
			return nil, nil
		}
		select {
		case <-enough.C:
			return differences, err
		case <-ctx.Done():
			return differences, errors.Join(err, ctx.Err())
		case <-tick.C:
		}
	}
}

func (m *Manager) verifyOnce(ctx context.Context, r *remembered) ([]string, error) {
	var found []Difference
	if m.config.Verify != nil {
		var err error
		if found, err = m.config.Verify(ctx, r.attachment); err != nil {
			return nil, err
		}
	}
	return r.judge(found), nil
}
