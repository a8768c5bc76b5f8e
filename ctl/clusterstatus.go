package ctl

import (
	"context"
	"errors"
)

// clusterStatus prints the state of the cluster on one screen.
func (c *client) clusterStatus(context.Context) error { return errors.New("todo") }
