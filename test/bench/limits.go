package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/traffic"
)

// limitsTime is how long each limit is measured, after limitsStart, in which the bucket becomes empty.
const (
	limitsTime  = 10 * time.Second
	limitsStart = 2 * time.Second
)

// limitedRate is a rate that is measured, in bits per second, with Weft's default burst in bytes.
type limitedRate struct {
	quantity string
	bits     float64
	burst    int
}

var limitedRates = []limitedRate{{"1M", 1e6, 80_000}, {"100M", 1e8, 3_125_000}, {"1G", 1e9, 31_250_000}}

// Payload and headers of iperf3's packets: of TCP in full segments with timestamps, of UDP with the length that is
// requested.
const (
	tcpPayload = 1448
	tcpHeaders = 14 + 20 + 32
	udpPayload = 1400
	udpHeaders = 14 + 20 + 8
)

// The rate of small packets, and their burst in bytes.
const (
	smallRate  = 1e6 // packets per second
	smallBurst = 200_000
	smallSize  = 64 // bytes of a packet of a memif
	bridgeSize = 60 // bytes of a frame of traffic.Flood
)

// limitedWay is a path whose rate is limited.
type limitedWay struct {
	name string
	path traffic.Path
}

const limitsMethod = `
Limits: traffic that exceeds a limit for %s, after %s in which the bucket becomes empty, and what arrives of it with its headers, as a
part of the rate: 1 is exact. iperf3 sends TCP, or UDP at 1.2 times the rate; the figures are those of its receiver. tbf is the
kernel's token bucket filter with the same rate and burst and 25 ms of queue, at the receiver's port of a Linux bridge. Less than 1 of
UDP can also mean that the machine cannot send as much: "sent" is what the sender tried.
`

// measureLimits measures limits of rates of Weft and of the kernel in turn.
func measureLimits(ctx context.Context, b *bench, programs string) error {
	for _, program := range []string{"iperf3", "tc"} {
		if _, err := exec.LookPath(program); err != nil {
			return err
		}
	}
	load, _ := os.ReadFile("/proc/loadavg") // optional
	fmt.Fprintf(b.out, limitsMethod, limitsTime, limitsStart)
	fmt.Fprintf(b.out, "Load of the machine before: %s\n", load)
	o := node.Options{CoolDown: time.Second, Networks: networks(), Memifs: 2}
	return withNode(ctx, programs, o, func(n *node.Node) error {
		runtime, err := n.Runtime(os.Stderr)
		if err != nil {
			return err
		}
		l := &lab{runtime: runtime}
		return errors.Join(b.measureLimits(ctx, n, l), l.close(context.WithoutCancel(ctx)))
	})
}

func (b *bench) measureLimits(ctx context.Context, n *node.Node, l *lab) error {
	bridge, err := l.buildBridge(n.Dir)
	if err != nil {
		return err
	}
	free, err := l.addPod(ctx, n, "free", map[string]string{customInterfaces: "t1/tap/many"})
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "rate\tlimit\tTCP\tUDP\tsent\t\n")
	for i, rate := range limitedRates {
		limited, err := l.addPod(ctx, n, fmt.Sprint("limited", i), map[string]string{
			"kubernetes.io/egress-bandwidth":  rate.quantity,
			"kubernetes.io/ingress-bandwidth": rate.quantity,
			customInterfaces:                  "t1/tap/many",
			"contivpp.io/custom-if-options":   fmt.Sprintf(`{"t1": {"rate": %q}}`, rate.quantity),
		})
		if err != nil {
			return err
		}
		if err := limitBridge(ctx, rate.bits, rate.burst); err != nil {
			return err
		}
		for _, way := range []limitedWay{
			{"kubernetes.io/egress-bandwidth", pathOf(limited, free, 0)},
			{"kubernetes.io/ingress-bandwidth", pathOf(free, limited, 0)},
			{"rate, from the pod, L2", pathOf(limited, free, 1)},
			{"rate, to the pod, L2", pathOf(free, limited, 1)},
			{"tbf", bridge.path},
		} {
			if err := way.measure(ctx, w, rate); err != nil {
				return fmt.Errorf("%s of %s: %w", way.name, rate.quantity, err)
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := b.limitSmallPackets(ctx, n, l); err != nil {
		return fmt.Errorf("memif: %w", err)
	}
	return b.limitSmallPacketsOfBridge(ctx, bridge)
}

// limitedPod is a pod with the links of its ADD.
type limitedPod struct {
	*node.Pod
	links []node.Link
}

func (l *lab) addPod(
	ctx context.Context, n *node.Node, name string, annotations map[string]string,
) (limitedPod, error) {
	p, err := n.NewPod(name)
	if err != nil {
		return limitedPod{}, err
	}
	p.Annotations = annotations
	return l.addTo(ctx, p)
}

func (l *lab) addTo(ctx context.Context, p *node.Pod) (limitedPod, error) {
	l.pods = append(l.pods, p)
	result, err := l.runtime.Add(ctx, p)
	if err != nil {
		return limitedPod{}, err
	}
	links, err := node.Links(result)
	return limitedPod{p, links}, err
}

// pathOf returns the path between the links of two pods with the same position.
func pathOf(from, to limitedPod, link int) traffic.Path {
	return traffic.Path{
		From:     from.Netns,
		FromLink: from.links[link].Name,
		To:       to.Netns,
		Address:  to.links[link].Bare()[0],
	}
}

// limitBridge limits the rate to the receiver at the bridge.
func limitBridge(ctx context.Context, bits float64, burst int) error {
	out, err := exec.CommandContext(ctx, "tc", "qdisc", "replace", "dev", bridgeName+"p1", "root", "tbf", "rate",
		fmt.Sprintf("%.0fbit", bits), "burst", strconv.Itoa(burst), "latency", "25ms").CombinedOutput()
	if err != nil {
		return fmt.Errorf("tc: %w: %s", err, out)
	}
	return nil
}

// measure prints a line of the table.
func (w limitedWay) measure(ctx context.Context, out *tabwriter.Writer, rate limitedRate) error {
	tcp, err := iperf(ctx, w.path, 0)
	if err != nil {
		return err
	}
	udp, err := iperf(ctx, w.path, 1.2*rate.bits*udpPayload/(udpPayload+udpHeaders))
	if err != nil {
		return err
	}
	const whole = float64(udpPayload+udpHeaders) / udpPayload
	fmt.Fprintf(out, "%s\t%s\t%.3f\t%.3f\t%.2f\t\n", rate.quantity, w.name,
		tcp.arrived*(tcpPayload+tcpHeaders)/tcpPayload/rate.bits, udp.arrived*whole/rate.bits, udp.sent*whole/rate.bits)
	return nil
}

// payloadRates are bits per second of payload after limitsStart.
type payloadRates struct{ sent, arrived float64 }

// iperf sends by iperf3: UDP with these bits per second of payload, or TCP if they are 0.
func iperf(ctx context.Context, p traffic.Path, bits float64) (r payloadRates, err error) {
	ctx, cancel := context.WithTimeout(ctx, limitsStart+limitsTime+time.Minute)
	var arrived bytes.Buffer
	server := exec.CommandContext(ctx, "iperf3", "--server", "--one-off", "--json", "--bind", p.Address.String())
	server.Stdout = &arrived
	defer func() { cancel(); _ = server.Wait() }()
	if err := traffic.Inside(p.To, server.Start); err != nil {
		return r, err
	}
	seconds := strconv.Itoa(int((limitsStart + limitsTime).Seconds()) + 1)
	args := []string{"--client", p.Address.String(), "--json", "--time", seconds}
	if bits > 0 {
		args = append(args, "--udp", "--bitrate", fmt.Sprintf("%.0f", bits), "--length", strconv.Itoa(udpPayload))
	}
	sent, err := iperfClient(ctx, p.From, args)
	for err == nil && bytes.Contains(sent, []byte("Connection refused")) { // the server does not listen yet
		select {
		case <-ctx.Done():
			return r, fmt.Errorf("iperf3's server does not listen: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
		sent, err = iperfClient(ctx, p.From, args)
	}
	if err != nil {
		return r, fmt.Errorf("iperf3's client: %w: %s", err, sent)
	}
	if err := server.Wait(); err != nil {
		return r, fmt.Errorf("iperf3's server: %w: %s", err, arrived.Bytes())
	}
	r.sent, err = payloadRate(sent)
	if err != nil {
		return r, err
	}
	r.arrived, err = payloadRate(arrived.Bytes())
	return r, err
}

// iperfClient runs a client and returns its report. With --json it also exits with 0 after an error.
func iperfClient(ctx context.Context, namespace string, args []string) ([]byte, error) {
	var report bytes.Buffer
	client := exec.CommandContext(ctx, "iperf3", args...)
	client.Stdout = &report
	if err := traffic.Inside(namespace, client.Start); err != nil {
		return nil, err
	}
	err := client.Wait()
	return report.Bytes(), err
}

// payloadRate returns the rate of limitsTime after limitsStart in a report of iperf3.
func payloadRate(report []byte) (float64, error) {
	var r struct {
		Error     string
		Intervals []struct {
			Sum struct{ Start, Seconds, Bytes float64 }
		}
	}
	if err := json.Unmarshal(report, &r); err != nil {
		return 0, fmt.Errorf("iperf3's report: %w: %s", err, report)
	}
	var seconds, bytes float64
	for _, i := range r.Intervals {
		if i.Sum.Start > limitsStart.Seconds()-0.5 && seconds < limitsTime.Seconds()-0.5 {
			seconds += i.Sum.Seconds
			bytes += i.Sum.Bytes
		}
	}
	if r.Error != "" || seconds < limitsTime.Seconds()-0.5 {
		return 0, fmt.Errorf("iperf3's report has %.1f s: %s", seconds, report)
	}
	return 8 * bytes / seconds, nil
}

// smallWay is a way between two memifs.
type smallWay struct {
	ends  [2]*memif.Conn // sender, receiver
	frame []byte
}

// limitSmallPackets prints how many packets arrive between two memifs, of which one has a limit in both directions.
func (b *bench) limitSmallPackets(ctx context.Context, n *node.Node, l *lab) error {
	rate := fmt.Sprintf("%.0f", smallRate*smallSize*8)
	var conns [2]*memif.Conn
	var macs [2]net.HardwareAddr
	for i, options := range []string{"", fmt.Sprintf(`{"m1": {"rate": %q, "burst": "%d"}}`, rate, smallBurst)} {
		p, err := n.NewPod(fmt.Sprint("memif", i))
		if err != nil {
			return err
		}
		p.Annotations = map[string]string{customInterfaces: "m1/memif/many", "contivpp.io/custom-if-options": options}
		containers, err := n.Admit(ctx, p, kubelettest.Container{Name: "vnf", Limit: 1})
		if err != nil {
			return err
		}
		added, err := l.addTo(ctx, p)
		if err != nil {
			return err
		}
		if macs[i], err = net.ParseMAC(added.links[1].Mac); err != nil {
			return err
		}
		conns[i], err = memif.Connect(ctx, memif.ClientConfig{
			Socket:   filepath.Join(containers[0].Mounts[0].GetHostPath(), "memif.sock"),
			ID:       1,
			Secret:   memif.Secret(containers[0].Envs[memif.SecretVariable]),
			RingSize: 2048,
			Name:     "bench",
		})
		if err != nil {
			return err
		}
		defer conns[i].Release()
	}
	fmt.Fprintf(b.out, "\nPackets of %d bytes, a limit of %.0f packets per second:\n", smallSize, smallRate)
	for i, direction := range []string{"to the memif", "from the memif"} {
		w := smallWay{ends: [2]*memif.Conn{conns[i], conns[1-i]}}
		var err error
		if w.frame, err = smallFrame(macs[i], macs[1-i]); err != nil {
			return err
		}
		sent, arrived, err := w.flood(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(b.out, "weft-vswitch, %s: %.0f k/s sent, %.0f k/s arrived: %.3f\n", direction, sent/1e3,
			arrived/1e3, arrived/smallRate)
	}
	return nil
}

// smallFrame is a UDP packet between two memifs.
func smallFrame(from, to net.HardwareAddr) ([]byte, error) {
	ip := &layers.IPv4{
		Version:  4,
		TTL:      64,
		Protocol: layers.IPProtocolUDP,
		SrcIP:    net.IPv4(10, 254, 0, 1),
		DstIP:    net.IPv4(10, 254, 0, 2),
	}
	udp := &layers.UDP{SrcPort: 1000, DstPort: 1001}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: from, DstMAC: to, EthernetType: layers.EthernetTypeIPv4}, ip, udp,
		gopacket.Payload(make([]byte, smallSize-udpHeaders)))
	return b.Bytes(), err
}

// flood sends 1.3 times smallRate in a thread that also receives, and returns the packets per second of limitsTime
// after limitsStart.
func (w smallWay) flood(ctx context.Context) (sent, arrived float64, err error) {
	const batch = 64
	out := w.ends[0].TxQueues()[0]
	in := w.ends[1].RxQueues()[0]
	room := make([]memif.Packet, 256)
	var counts, before struct{ sent, arrived int }
	started := false
	began := time.Now()
	for ctx.Err() == nil {
		took := time.Since(began)
		if !started && took >= limitsStart {
			before = counts
			started = true
		}
		if took >= limitsStart+limitsTime {
			seconds := (took - limitsStart).Seconds()
			return float64(counts.sent-before.sent) / seconds, float64(counts.arrived-before.arrived) / seconds, nil
		}
		due := int(took.Seconds()*1.3*smallRate) - counts.sent
		if due >= batch && out.Free() >= batch {
			for range batch {
				out.Append(w.frame)
			}
			out.Flush()
			counts.sent += batch
		}
		counts.arrived += in.Peek(room)
		in.Release()
		if err := errors.Join(w.ends[0].Err(), w.ends[1].Err()); err != nil {
			return 0, 0, err
		}
	}
	return 0, 0, ctx.Err()
}

// limitSmallPacketsOfBridge prints the same for the kernel.
func (b *bench) limitSmallPacketsOfBridge(ctx context.Context, bridge way) error {
	if err := limitBridge(ctx, smallRate*bridgeSize*8, smallBurst); err != nil {
		return err
	}
	if _, err := traffic.Flood(ctx, bridge.path, bridge.toLink, limitsStart); err != nil {
		return err
	}
	count, err := traffic.Flood(ctx, bridge.path, bridge.toLink, limitsTime)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.out, "tbf: %.0f k/s sent, %.0f k/s arrived: %.3f\n", float64(count.Sent)/count.Took.Seconds()/1e3,
		count.Rate()/1e3, count.Rate()/smallRate)
	return nil
}
