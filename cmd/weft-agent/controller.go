package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/controller"
)

// controllerOptions are the flags of weft-agent controller.
type controllerOptions struct {
	kubeconfig string
	namespace  string
	health     string
	endpoints  bool
	policies   bool
	level      slog.Level
	untaint    bool
}

func (o *controllerOptions) flags(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server; default: as a pod does, by its service account")
	fs.StringVar(&o.namespace, "namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), "weft-system"), "where its lease and its ledger are; default: POD_NAMESPACE of the environment")
	fs.StringVar(&o.health, "health-address", "127.0.0.1:9879", "where /livez and /readyz are answered")
	fs.BoolVar(&o.untaint, "untaint-nodes", false, "take the taint "+controller.TaintNotReady+" off nodes that serve pods; needs the right to watch and patch nodes")
	fs.BoolVar(&o.endpoints, "service-endpoints", false, "keep EndpointSlices for Services with the annotation contivpp.io/endpoint-selector; needs the rights of endpoints.yaml")
	fs.BoolVar(&o.policies, "report-network-policies", true, "tell the authors of NetworkPolicies by events that Weft enforces none; off where another component enforces them")
	fs.TextVar(&o.level, "log-level", slog.LevelInfo, "debug, info, warn or error")
}

func (o *controllerOptions) validate() error {
	if o.kubeconfig != "" && !filepath.IsAbs(o.kubeconfig) {
		return usageError{fmt.Errorf("--kubeconfig %s: expected an absolute path", o.kubeconfig)}
	}
	if _, _, err := net.SplitHostPort(o.health); err != nil {
		return usageError{fmt.Errorf("--health-address %s: %w", o.health, err)}
	}
	return nil
}

func controllerCommand() *cobra.Command {
	var o controllerOptions
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Write the status of the cluster's networks and pools; runs once or more in a cluster, not on each node",
		Long: "controller gives networks their VXLAN identifiers, writes the status of CustomNetworks and IPPools by what nodes\n" +
			"say, and frees addresses of nodes that are no more. Where it is told to, it makes the endpoints of Services that ask for\n" +
			"backends on other interfaces of pods. Unless it is told not to, it writes events on NetworkPolicies, which Weft does not\n" +
			"enforce. Of several replicas the one that holds a lease works.",
		Example: "  weft-agent controller\n  weft-agent controller --kubeconfig /etc/kubernetes/admin.conf",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: o.level}))
			return o.run(cmd.Context(), log)
		},
	}
	o.flags(cmd.Flags())
	return cmd
}

func (o *controllerOptions) run(ctx context.Context, log *slog.Logger) error {
	connection, err := client.Connection(o.kubeconfig)
	if err != nil {
		return err
	}
	client, err := client.New(connection)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this replica: %w", err)
	}
	c, err := controller.New(controller.Config{
		Client: client, Namespace: o.namespace, Identity: host + "_" + rand.Text(),
		Untaint: o.untaint, ServiceEndpoints: o.endpoints, ReportPolicies: o.policies, Log: log,
	})
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.health)
	if err != nil {
		return fmt.Errorf("listen for probes: %w", err)
	}
	log.Info("controller starting", "version", version.String(), "namespace", o.namespace)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.ServeHealth(ctx, listener) })
	group.Go(func() error { return c.Run(ctx) })
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	log.Info("controller stopped")
	return nil
}
