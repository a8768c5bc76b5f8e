package linux

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/weftnet/weft/internal/netnstest"
)

// Rules may be lost before anyone follows them, so the beginning is a reason to look as well.
func TestRulesThatAreLostBeforeAndAfterTheBeginningAreNotified(t *testing.T) {
	netnstest.Require(t)
	notified := make(chan struct{}, 100)
	await := func(cause string) {
		t.Helper()
		select {
		case <-notified:
		case <-time.After(10 * time.Second):
			t.Fatal("no notification of", cause)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- FollowRules(ctx, func() { notified <- struct{}{} }) }()
	await("the beginning")

	c, err := nftables.New()
	must(t, err)
	for _, name := range []string{tableName, "foreign"} {
		table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: name})
		must(t, c.Flush())
		c.DelTable(table)
		must(t, c.Flush())
	}
	await("the deletion of a table of Weft")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if n := len(notified); n > 0 {
		t.Errorf("%d more notifications: of a table that is not Weft's", n)
	}
}
