package attach

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weftnet/weft/pod"
)

// deviceAssignment assigns the devices of a pod's containers and claims to the memifs of a request.
type deviceAssignment struct {
	request *pod.Request
	specs   []spec
	left    []int       // free devices of each grant of the event
	chosen  map[int]int // the index of a grant, by the index of the spec
}

// defaultQueues is the number of a memif's queues in each direction.
const defaultQueues = 1

// assignDevices assigns each requested memif to a container: the container of the requested device, the container that
// the options name, or the first container that has a device left, in this order. A memif of a claim has the claim's
// device. The memifs of a container are numbered from 1: first the memifs of other attachments of the sandbox, then in
// the order of the annotation. The memif of a claim has number 1.
func assignDevices(request *pod.Request, specs []spec, siblings []*pod.Attachment) error {
	if err := distinctVariables(request, specs); err != nil {
		return err
	}
	held := memifsOf(siblings)
	d := &deviceAssignment{
		request: request, specs: specs, left: make([]int, len(request.Grants)), chosen: make(map[int]int),
	}
	ids := make(map[string]uint32) // the highest in use, by container
	for g := range request.Grants {
		grant := &request.Grants[g]
		d.left[g] = len(grant.Allocation.Devices) - len(held[grant.Allocation.ID])
		for _, i := range held[grant.Allocation.ID] {
			ids[containerOf(grant)] = max(ids[containerOf(grant)], i.Memif.ID)
		}
	}
	if err := d.assignAll(); err != nil {
		return err
	}
	for at := range specs {
		if g, ok := d.chosen[at]; ok {
			grant := &request.Grants[g]
			ids[containerOf(grant)]++
			specs[at].memif.assigned = specs[at].memifOf(grant, ids[containerOf(grant)])
		}
	}
	return sameOwner(request, specs, held)
}

// distinctVariables rejects memifs of claims with sockets that have the same environment variable: a container would
// find only one of them.
func distinctVariables(request *pod.Request, specs []spec) error {
	named := make(map[string]string)
	refuse := func(name, source string) error {
		variable := pod.SocketVariable(name)
		if other, is := named[variable]; is {
			return pod.Errorf(pod.CodeInvalidAnnotation,
				"%s: %s: interfaces %s and %s of claims have the same variable %s in containers; rename one of them",
				request, source, other, name, variable)
		}
		named[variable] = name
		return nil
	}
	for _, s := range specs {
		if s.memif.claimed == "" {
			continue
		}
		if err := refuse(s.name, s.source.options); err != nil {
			return err
		}
	}
	for _, g := range request.Grants {
		c := g.Allocation.Claim
		if c == nil || !c.Parameters.Delegate {
			continue
		}
		if err := refuse(c.Parameters.Interface, "claim "+c.String()); err != nil {
			return err
		}
	}
	return nil
}

// memifsOf returns the memifs of attachments by allocation.
func memifsOf(attachments []*pod.Attachment) map[string][]pod.Interface {
	memifs := make(map[string][]pod.Interface)
	for _, a := range attachments {
		for _, i := range a.Interfaces {
			if i.Memif != nil {
				memifs[i.Memif.Allocation] = append(memifs[i.Memif.Allocation], i)
			}
		}
	}
	return memifs
}

// containerOf returns the container of a grant, or the allocation of a claim, which belongs to several containers.
func containerOf(g *pod.Grant) string { return cmp.Or(g.Container, g.Allocation.ID) }

// assignAll assigns a device to each memif. The more a memif says about its device, the earlier it gets one.
func (d *deviceAssignment) assignAll() error {
	if err := d.assignRequested(); err != nil {
		return err
	}
	if err := d.assignClaimed(); err != nil {
		return err
	}
	if err := d.assignFree(func(s spec) bool { return s.memif.options.Container != "" }); err != nil {
		return err
	}
	return d.assignFree(func(spec) bool { return true })
}

// assign gives a device of a grant to a spec.
func (d *deviceAssignment) assign(at, g int) {
	d.left[g]--
	d.chosen[at] = g
}

// assignClaimed assigns the devices of claims to the memifs that these request.
func (d *deviceAssignment) assignClaimed() error {
	for at, s := range d.specs {
		if s.memif.claimed == "" {
			continue
		}
		g := slices.IndexFunc(d.request.Grants, func(g pod.Grant) bool { return g.Allocation.ID == s.memif.claimed })
		if g < 0 || d.left[g] <= 0 {
			return pod.Errorf(pod.CodeDeviceMissing,
				"%s: %s: interface %s: its device was released; delete the pod and create it again", d.request,
				s.source.options, s.name)
		}
		d.assign(at, g)
	}
	return nil
}

// assignFree assigns free devices of containers to the selected memifs without a device.
func (d *deviceAssignment) assignFree(selected func(spec) bool) error {
	for at, s := range d.specs {
		if _, done := d.chosen[at]; done || s.kind != pod.TypeMemif || !selected(s) {
			continue
		}
		g := d.freeGrant(s.memif.options.Container)
		if g < 0 {
			return d.missing(s)
		}
		d.assign(at, g)
	}
	return nil
}

// freeGrant returns the first grant with a free device, of a container unless that is ""; -1 if there is no such grant.
func (d *deviceAssignment) freeGrant(container string) int {
	for g := range d.request.Grants {
		grant := &d.request.Grants[g]
		if d.left[g] > 0 && grant.Allocation.Claim == nil && (container == "" || grant.Container == container) {
			return g
		}
	}
	return -1
}

// assignRequested assigns the device that the request names to the main interface, if it is a memif.
func (d *deviceAssignment) assignRequested() error {
	device := d.request.Requested.DeviceID
	isMainMemif := func(s spec) bool { return s.name == d.request.Key.IfName && s.kind == pod.TypeMemif }
	at := slices.IndexFunc(d.specs, isMainMemif)
	if device == "" || at < 0 {
		return nil
	}
	s := d.specs[at]
	container := s.memif.options.Container
	if kept := keptBy(d.request, device); kept != nil {
		if d.freeGrant(container) >= 0 {
			return nil // Multus does not know what a device is for; the pod has another one for this interface
		}
		return pod.Errorf(pod.CodeDeviceMissing,
			"%s: interface %s: deviceID %q is interface %s of claim %s: set delegate: true in the claim's parameters",
			d.request, s.name, device, kept.Parameters.Interface, kept)
	}
	g := d.grantNamed(device)
	if g < 0 {
		return pod.Errorf(pod.CodeDeviceMissing,
			"%s: interface %s: deviceID %q is of no container of the pod; these have a %s: %s",
			d.request, s.name, device, pod.Resource, containersOf(d.request))
	}
	grant := &d.request.Grants[g]
	isClaims := grant.Allocation.Claim != nil
	switch {
	case isClaims && container != "":
		return pod.Errorf(pod.CodeInvalidConfig,
			"%s: interface %s: deviceID %q is a claim's, and the pod's spec says which containers have the claim; "+
				"leave out the option container",
			d.request, s.name, device)
	case isClaims && d.left[g] <= 0:
		return pod.Errorf(pod.CodeDeviceMissing,
			"%s: interface %s: deviceID %q is another interface of the pod already", d.request, s.name, device)
	case !isClaims && container != "" && container != grant.Container:
		return pod.Errorf(pod.CodeInvalidConfig,
			"%s: interface %s: deviceID %q is container %s's, and the option container says %s",
			d.request, s.name, device, grant.Container, container)
	case d.left[g] <= 0:
		return d.missing(s)
	}
	d.assign(at, g)
	return nil
}

// grantNamed returns the grant of the device that a deviceID names; -1 if there is no such grant. Multus 4.3.0 numbers
// all CDI devices of a claim, more than it has memifs, so another device of the same claim replaces one that an
// interface has already.
func (d *deviceAssignment) grantNamed(device string) int {
	grants := d.request.Grants
	named := slices.IndexFunc(grants, func(g pod.Grant) bool { return isNamedBy(&g, device) })
	if named < 0 || d.left[named] > 0 || grants[named].Allocation.Claim == nil {
		return named
	}
	for g := range grants {
		c := grants[g].Allocation.Claim
		if d.left[g] > 0 && c != nil && c.Parameters.Delegate && c.UID == grants[named].Allocation.Claim.UID {
			return g
		}
	}
	return named
}

// isNamedBy reports whether a deviceID names the device of a grant: a device of the device plugin, or of a claim for
// delegates.
func isNamedBy(g *pod.Grant, device string) bool {
	if c := g.Allocation.Claim; c != nil {
		return c.Parameters.Delegate && g.Allocation.IsClaimedAs(device)
	}
	return slices.Contains(g.Allocation.Devices, device)
}

// keptBy returns the claim that has the device for its own interface; nil if no claim has it.
func keptBy(request *pod.Request, device string) *pod.ClaimedDevice {
	for _, g := range request.Grants {
		if c := g.Allocation.Claim; c != nil && !c.Parameters.Delegate && g.Allocation.IsClaimedAs(device) {
			return c
		}
	}
	return nil
}

// missing says which resource a pod lacks, and where.
func (d *deviceAssignment) missing(s spec) error {
	container := s.memif.options.Container
	if d.request.ID.IsZero() {
		return pod.Errorf(pod.CodeDeviceMissing,
			"%s: interface %s: a memif needs a Kubernetes pod with the limit %s, and this pod is not from Kubernetes",
			d.request, s.name, pod.Resource)
	}
	isGranted := slices.ContainsFunc(d.request.Grants, func(g pod.Grant) bool { return g.Container == container })
	if container != "" && !isGranted {
		return pod.Errorf(pod.CodeDeviceMissing, "%s: interface %s: %s", d.request, s.name,
			pod.NoMemifs(container, containersOf(d.request)))
	}
	needed := 0
	for _, o := range d.specs {
		if o.kind == pod.TypeMemif && o.memif.claimed == "" &&
			(container == "" || o.memif.options.Container == container) {
			needed++
		}
	}
	have := 0
	for _, g := range d.request.Grants {
		if g.Allocation.Claim == nil && (container == "" || g.Container == container) {
			have += len(g.Allocation.Devices)
		}
	}
	return pod.Errorf(pod.CodeDeviceMissing, "%s: interface %s: %s", d.request, s.name,
		pod.FewMemifs(container, have, needed))
}

func containersOf(request *pod.Request) string {
	var names []string
	for _, g := range request.Grants {
		if g.Allocation.Claim == nil {
			names = append(names, g.Container)
		}
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

// memifOf returns the memif of a spec with a device of a container and an id.
func (s *spec) memifOf(g *pod.Grant, id uint32) *pod.Memif {
	o := s.memif.options
	m := &pod.Memif{
		Container:  g.Container,
		Allocation: g.Allocation.ID,
		Socket:     g.Allocation.Socket,
		SocketPath: g.Allocation.SocketPath(),
		ID:         id,
		Mode:       cmp.Or(o.Mode, pod.MemifEthernet),
		Role:       o.Role,
		RingSize:   cmp.Or(o.RingSize, pod.DefaultRingSize),
		BufferSize: cmp.Or(o.BufferSize, pod.DefaultBufferSize),
		RxQueues:   cmp.Or(s.queues.rx, defaultQueues),
		TxQueues:   cmp.Or(s.queues.tx, defaultQueues),
		GID:        g.GID,
	}
	if o.UID != nil {
		m.UID = int(*o.UID)
	}
	if o.GID != nil {
		m.GID = int(*o.GID)
	}
	return m
}

// sameOwner rejects different owners of the memifs of a container, because they share a socket. held are the memifs of
// sibling attachments, by allocation.
func sameOwner(request *pod.Request, specs []spec, held map[string][]pod.Interface) error {
	type owner struct {
		name  string
		memif *pod.Memif
	}
	first := make(map[string]owner)
	for _, memifs := range held {
		first[socketOwner(memifs[0].Memif)] = owner{name: memifs[0].Name, memif: memifs[0].Memif}
	}
	for _, s := range specs {
		m := s.memif.assigned
		if m == nil {
			continue
		}
		o, shared := first[socketOwner(m)]
		if shared && (o.memif.UID != m.UID || o.memif.GID != m.GID) {
			return pod.Errorf(pod.CodeInvalidAnnotation,
				"%s: annotation %s: interfaces %s and %s of container %s share a socket, "+
					"so their uid and gid must be the same",
				request, pod.AnnotationOptions, o.name, s.name, m.Container)
		}
		if !shared {
			first[socketOwner(m)] = owner{name: s.name, memif: m}
		}
	}
	return nil
}

// socketOwner returns the owner of a memif's socket: a container with all its memifs, or the allocation of a claim with
// one memif.
func socketOwner(m *pod.Memif) string { return cmp.Or(m.Container, m.Allocation) }
