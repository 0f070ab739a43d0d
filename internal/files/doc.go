// Package files opens and replaces the files in a member's Dir, so that only the
// user of the process can read or change them.
//
// [Prepare] makes or checks the directory, [Take] locks it against other
// processes, [Inspect] checks the files in it, in this order; [Open] and [Replace]
// touch single files, and [SyncDir] makes names durable.
//
// # Access to the files of a Dir
//
// The files hold votes, promises and the lock table, and no key or secret. Another
// user that writes to them can make this member vote twice, or part its lock table
// from the others'. A checksum does not help against a writer, who writes the
// checksum too. So Prepare and Inspect ask the operating system:
//
//   - Dir is a directory itself and no symbolic link. A link is as safe as all
//     directories on the way to its target, which Prepare cannot judge; the
//     operator who wants the target names the target.
//   - Dir belongs to this process's user or to root. Root can do everything anyway,
//     and owns the top directory of a volume.
//   - Users outside of Dir's group cannot write to Dir.
//   - Dir's group can write to Dir only if root owns Dir and this process is in
//     the group. A Kubernetes volume with an fsGroup looks like this: the kubelet
//     gives the volume to root and the fsGroup, with mode 2775, and adds the
//     group's bits to all files at each mount. In a container the members of that
//     group are the containers of the pod. A Dir that belongs to any other user
//     than root loses the group's right to write.
//   - Files and directories in Dir are regular, belong to this process's user, and
//     have a single name. A second name (a hard link) would be a way around Dir's
//     mode. The rights of the group and of others are taken away from them; what
//     another user wrote in the meantime is found, if at all, by the checksums.
//
// Inspect looks at the names of a member's files alone: lock, and names that begin
// with identity or raft. All other files in Dir (lost+found, for example) are
// nobody's business here. Access lists beyond the mode, and the directories above
// Dir, are the operator's: a user that can rename Dir can take it away from the
// member, and at the next start the user's own directory in its place is refused.
//
// Where the operating system has no owners and modes (Windows), the types of the
// files are checked alone.
//
// # Access to a file with secrets
//
// [ReadSecret] reads a file that a program names, outside of Dir. Another user that
// reads the file is a member of the cluster; another user that writes to it brings
// this member into a cluster of the writer's.
//
//   - The file belongs to this process's user or to root, and no other user can write
//     to it, the group included.
//   - No other user can read a file of this process's user. ReadSecret narrows no mode:
//     a secret that was open for a while may be known.
//   - A file of root may be readable by others. Kubernetes and Docker show secrets so
//     in a container, where the process is the only other user; on a shared host the
//     mode is root's to choose, and OpenSSH leaves it to root likewise.
//   - Symbolic links are followed: a Kubernetes volume consists of them. The judged file
//     is the one that was opened.
//
// The package keeps no state and owns no goroutine. internal/identity calls the
// first three, for the whole Dir; internal/raftstore and internal/consensus use the
// rest, but for ReadSecret, which is package wardmote's.
package files
