// Package deletequeue is the directory of CNI DELs that the plugin leaves for an agent that does not answer.
//
// Writers hold the directory's flock shared, the one reader holds it exclusive
// while it drains. Under its lock a writer tries the agent once more (AddUnless);
// an agent that starts drains and opens its socket under one lock (Lock). So an
// entry is either seen by that drain, or not written because the agent answers.
package deletequeue
