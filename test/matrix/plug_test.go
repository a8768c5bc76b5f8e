package matrix_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/memif/kerneltap"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/netns"
)

// plug is the program of a memif's pod: it joins the memif to a tap, so tests can check this pod like others.
type plug struct {
	tap     *kerneltap.Tap
	client  *memif.Client
	stop    context.CancelFunc
	running sync.WaitGroup
}

// plugIn starts forwarding as soon as the memif is connected.
func (w *attachedPod) plugIn(t *testing.T) {
	t.Helper()
	directory := w.container.Mounts[0].GetHostPath()
	text, err := os.ReadFile(filepath.Join(directory, memif.DescriptionFile))
	must.Succeed(t, err)
	all, err := memif.ParseDescriptions(text)
	must.Succeed(t, err)
	if len(all) != 1 || all[0].Name != "x0" {
		t.Fatalf("interfaces.json is %s", text)
	}
	d := all[0]
	p := &plug{}
	must.Succeed(t, netns.Do(w.Netns, func() (err error) { p.tap, err = kerneltap.New(d); return err }))
	ctx, cancel := context.WithTimeout(t.Context(), settling)
	defer cancel()
	p.client, err = memif.Dial(ctx, memif.ClientConfig{
		Socket: filepath.Join(directory, "memif.sock"),
		ID:     d.ID,
		Secret: memif.Secret(w.container.Envs[memif.SecretVariable]),
		Name:   d.Name,
	}, memif.ClientEvents{})
	must.Succeed(t, err)
	ctx, p.stop = context.WithCancel(context.Background())
	p.running.Go(func() { p.tap.Forward(ctx, p.client) })
	w.plug = p
}

// unplug deletes the tap and waits until forwarding has ended.
func (w *attachedPod) unplug() error {
	if w.plug == nil {
		return nil
	}
	p := w.plug
	w.plug = nil
	p.stop()
	err := p.tap.Close()
	p.running.Wait()
	return errors.Join(err, p.client.Close())
}
