package ctl

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// lastTransactions is the default number of transactions to show.
const lastTransactions = 20

func transactionsCommand(c *client) *cobra.Command {
	var operations bool
	cmd := &cobra.Command{
		Use:     "transactions [N]",
		Aliases: []string{"txns"},
		Short:   "Lists the last N transactions of the scheduler, oldest first",
		Example: `  weftctl transactions          the last 20, one line each
  weftctl transactions 1        the last one with its operations
  weftctl transactions 5 --ops  the last five with their operations`,
		Args: usage(cobra.MatchAll(cobra.MaximumNArgs(1), isNumber)),
		RunE: func(cmd *cobra.Command, args []string) error {
			last := uint64(lastTransactions)
			if len(args) == 1 {
				last = numberOf(args[0])
			}
			if !cmd.Flags().Changed("ops") {
				operations = last == 1
			}
			reply, err := call(cmd.Context(), c.agent, operatorv1.OperationsClient.Transactions,
				&operatorv1.TransactionsRequest{Last: uint32(last)})
			if err != nil {
				return err
			}
			return c.show(reply, func() { printTransactions(&c.printer, reply.Transactions, operations) })
		},
	}
	cmd.Flags().BoolVar(&operations, "ops", false, "show the operations (default if N is 1)")
	return cmd
}

func transactionCommand(c *client) *cobra.Command {
	return &cobra.Command{
		Use:               "transaction NUMBER",
		Short:             "Shows one transaction: its plan and execution as a tree with times, and what was undone",
		Example:           "  weftctl transaction 42",
		Args:              usage(cobra.MatchAll(cobra.ExactArgs(1), isNumber)),
		ValidArgsFunction: completeTransactions(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			seq := numberOf(args[0])
			req := &operatorv1.TransactionsRequest{Since: seq, Through: seq}
			reply, err := call(cmd.Context(), c.agent, operatorv1.OperationsClient.Transactions, req)
			if err != nil {
				return err
			}
			if len(reply.Transactions) != 1 {
				return fmt.Errorf("no transaction %d is recorded; weftctl transactions lists them", seq)
			}
			t := reply.Transactions[0]
			return c.show(t, func() { printTransactionTree(&c.printer, t) })
		},
	}
}

// isNumber checks that the first argument, if any, is a number above 0.
func isNumber(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if n, err := strconv.ParseUint(args[0], 10, 32); err != nil || n == 0 {
		return fmt.Errorf("invalid number %q", args[0])
	}
	return nil
}

// numberOf returns a number that isNumber accepted.
func numberOf(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 32)
	return n
}

// printTransactionTree prints the operations by level: the operations of a level ran after all levels above it.
// Operations with the same batch were one call of the dataplane or the kernel. The rollback follows separately.
func printTransactionTree(p *printer, t *operatorv1.TransactionRecord) {
	p.printf("transaction %d  %s  %s\n", t.Seq, t.Origin, t.Label)
	p.printf("event %s, began %s, queued %s, planned in %s, took %s\n",
		eventNumber(t.Event), p.clock(t.Start), took(t.Queued), took(t.PlanTook), took(t.Took))
	p.printf("result: %s\n", transactionResult(p, t, whole))
	var forward, undo []*operatorv1.Operation
	for _, op := range t.Operations {
		if op.Why == whyUndo {
			undo = append(undo, op)
		} else {
			forward = append(forward, op)
		}
	}
	p.printOperations("", forward)
	p.printOperations("rollback", undo)
	for _, w := range t.Waiting {
		p.printf("\n")
		p.paragraph(waitingText(w))
	}
}

// waitingText names the objects that an object waits for.
func waitingText(w *operatorv1.Waiting) string {
	text := fmt.Sprintf("waiting: %s for %s", owned(w.Ref, w.Owners), strings.Join(w.Missing, ", "))
	if w.Lost {
		text += " (it was applied before)"
	}
	return text
}

// whyUndo is the reason of the operations of a rollback.
const whyUndo = "undo"

func (p *printer) printOperations(title string, ops []*operatorv1.Operation) {
	if len(ops) == 0 {
		return
	}
	p.printf("\n")
	if title != "" {
		p.printf("%s\n", p.bad(title))
	}
	level := ^uint32(0)
	for _, op := range ops {
		if op.Level != level {
			level = op.Level
			p.printf("level %d\n", level)
		}
		p.printf("  %-8s %8s +%-8s %s\n", op.Verb, "@"+took(op.At), took(op.Took), owned(op.Ref, op.Owners))
		if op.Why != "" && op.Why != "desired" && op.Why != whyUndo {
			p.printf("           because: %s\n", op.Why)
		}
		switch {
		case op.Outcome == skipped:
			p.printf("           %s\n", p.bad(operationError(op)))
			continue
		case op.Error != "":
			p.printf("           %s %s\n", p.bad("error:"), errorLine(op.Error))
		}
		if op.Outcome != "" && op.Outcome != "applied" {
			p.printf("           outcome: %s\n", op.Outcome)
		}
	}
}

func printTransactions(p *printer, transactions []*operatorv1.TransactionRecord, operations bool) {
	g := newGrid("seq", "event", "time", wide("origin"), "label", spare("ops"), spare("took"), "result")
	for i, t := range transactions {
		switch {
		case !operations:
			g.row(t.Seq, eventNumber(t.Event), p.clock(t.Start), t.Origin, t.Label, made(t), took(t.Took),
				transactionResult(p, t, p.brief))
		case i > 0:
			p.printf("\n")
			fallthrough
		default:
			printTransaction(p, t)
		}
	}
	if !operations || len(transactions) == 0 {
		p.printGrid(g, "no transactions")
	}
}

// printTransaction prints a line about the transaction, then its operations in order of execution.
func printTransaction(p *printer, t *operatorv1.TransactionRecord) {
	p.paragraph(fmt.Sprintf("transaction %d  event %s  %s  %s  %s  %s  took %s  %s", t.Seq, eventNumber(t.Event),
		p.clock(t.Start), t.Origin, t.Label, counted(made(t), "operation"), took(t.Took), transactionResult(p, t, whole)))
	if len(t.Operations) > 0 {
		g := newGrid(wide("level"), wide("batch"), "verb", "object", wide("owner"), wide("at"), "took", "why",
			"error")
		for _, op := range t.Operations {
			g.row(op.Level, op.Batch, op.Verb, op.Ref, orDash(ownersText(op.Owners)), took(op.At), took(op.Took),
				op.Why, p.bad(operationError(op)))
		}
		p.printGrid(g, "")
	}
	for _, w := range t.Waiting {
		p.paragraph(waitingText(w))
	}
}

// skipped is the outcome of an operation that was not begun, because one before it failed.
const skipped = "skipped"

// operationError formats the error of an operation, or why it was skipped.
func operationError(op *operatorv1.Operation) string {
	if op.Outcome == skipped {
		return skipped + ": " + errorLine(op.Error)
	}
	return errorLine(op.Error)
}

// made counts the operations that the transaction began, as the event's count does.
func made(t *operatorv1.TransactionRecord) (n int) {
	for _, op := range t.Operations {
		if op.Outcome != skipped {
			n++
		}
	}
	return n
}

func transactionResult(p *printer, t *operatorv1.TransactionRecord, told func(string) string) string {
	text := result(p, t.Undone, t.Error, told)
	if n := len(t.Operations) - made(t); n > 0 {
		text += ", " + counted(n, "operation") + " skipped"
	}
	if len(t.Waiting) > 0 {
		text += ", " + counted(len(t.Waiting), "object") + " waiting"
	}
	return text
}

// eventNumber formats the number of the event that caused a transaction.
func eventNumber(seq uint64) string {
	if seq == 0 {
		return "-"
	}
	return fmt.Sprintf("#%d", seq)
}
