package picture

import (
	"cmp"
	"slices"
	"unicode/utf8"
)

// Sizes in pixels. The advance of a monospace character at 12 px is 7.3 px.
const (
	boxHeight  = 40
	boxPad     = 12
	advance    = 7.3
	rowGap     = 18
	columnGap  = 120
	margin     = 20
	headHeight = 60
	sweeps     = 4 // of the ordering; more change little
)

// placed is a node with its position.
type placed struct {
	*Node
	column, row   int
	x, y, width   float64
	left, right   []*placed // what it depends on, and its dependents
	order         float64
	isBeingRanked bool
	isRanked      bool
}

// layout places the nodes in columns: each node is right of everything that it depends on. This is the order in which
// the scheduler creates the objects. In a column, nodes are sorted by the mean row of their neighbours, which removes
// most crossings.
func layout(g Graph) (nodes map[string]*placed, width, height float64) {
	nodes = make(map[string]*placed, len(g.Nodes))
	var list []*placed
	for i := range g.Nodes {
		n := &placed{Node: &g.Nodes[i]}
		if nodes[n.Name] == nil {
			nodes[n.Name] = n
			list = append(list, n)
		}
	}
	for _, e := range g.Edges {
		from := nodes[e.From]
		to := nodes[e.To]
		if from == nil || to == nil || from == to {
			continue
		}
		from.left, to.right = append(from.left, to), append(to.right, from)
	}
	var columns [][]*placed
	for _, n := range list {
		n.rank()
		for len(columns) <= n.column {
			columns = append(columns, nil)
		}
		columns[n.column] = append(columns[n.column], n)
	}
	order(columns)
	width, height = position(columns)
	return nodes, width, height
}

// rank sets the column of a node and of everything that it depends on. An edge that closes a cycle is ignored.
func (n *placed) rank() int {
	if n.isRanked || n.isBeingRanked {
		return n.column
	}
	n.isBeingRanked = true
	for _, to := range n.left {
		if !to.isBeingRanked {
			n.column = max(n.column, to.rank()+1)
		}
	}
	n.isBeingRanked = false
	n.isRanked = true
	return n.column
}

// order sorts the columns, from left to right by what nodes depend on, and back by their dependents.
func order(columns [][]*placed) {
	number := func(column []*placed) {
		for i, n := range column {
			n.row = i
		}
	}
	for _, column := range columns {
		number(column)
	}
	sort := func(column []*placed, neighbours func(*placed) []*placed) {
		for _, n := range column {
			n.order = mean(neighbours(n), float64(n.row))
		}
		slices.SortStableFunc(column, func(a, b *placed) int { return cmp.Compare(a.order, b.order) })
		number(column)
	}
	for range sweeps {
		for _, column := range columns {
			sort(column, func(n *placed) []*placed { return n.left })
		}
		for _, column := range slices.Backward(columns) {
			sort(column, func(n *placed) []*placed { return n.right })
		}
	}
}

func mean(nodes []*placed, otherwise float64) float64 {
	if len(nodes) == 0 {
		return otherwise
	}
	sum := 0
	for _, n := range nodes {
		sum += n.row
	}
	return float64(sum) / float64(len(nodes))
}

// position sets the coordinates, each column centred.
func position(columns [][]*placed) (width, height float64) {
	most := 0
	for _, column := range columns {
		most = max(most, len(column))
	}
	height = headHeight + float64(most)*(boxHeight+rowGap) + margin
	x := float64(margin)
	for _, column := range columns {
		widest := 0.0
		for _, n := range column {
			n.width = 2*boxPad + advance*float64(max(utf8.RuneCountInString(n.Name), len(n.phase())))
			widest = max(widest, n.width)
		}
		y := headHeight + float64(most-len(column))*(boxHeight+rowGap)/2
		for _, n := range column {
			n.x = x
			n.y = y
			y += boxHeight + rowGap
		}
		x += widest + columnGap
	}
	return max(x-columnGap+margin, 2*margin), height
}
