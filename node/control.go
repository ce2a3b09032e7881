package node

// controlActivities are what the workflows of the control queue call on this
// node: one value for each workflow, its methods are activities.
func (n *Node) controlActivities() []any {
	return nil
}
