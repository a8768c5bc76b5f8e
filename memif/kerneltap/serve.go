package kerneltap

import (
	"context"
	"fmt"
	"sync"

	"github.com/weftnet/weft/memif"
)

// Serve makes the tap of a memif, connects the memif, and forwards frames between both until ctx ends.
func Serve(ctx context.Context, c memif.ClientConfig, d memif.Description, events memif.ClientEvents) error {
	tap, err := New(d)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var closing sync.WaitGroup
	closing.Go(func() {
		<-ctx.Done()
		_ = tap.Close()
	})
	defer closing.Wait()
	defer stop()
	client, err := memif.Dial(ctx, c, events)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("connect %s: %w", d.Name, err)
	}
	defer client.Close()
	tap.Forward(ctx, client)
	return nil
}
