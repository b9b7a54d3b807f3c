package interop;

import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** The options access-key, secret-key and security-token: with them each request is signed. */
final class Keys {
    private Keys() {
    }

    /** The hook that signs, null without keys. */
    static RPCHook hook(Options options) {
        if (!options.has("access-key")) {
            return null;
        }
        String token = options.text("security-token", "");
        SessionCredentials keys = token.isEmpty()
            ? new SessionCredentials(options.text("access-key"), options.text("secret-key"))
            : new SessionCredentials(options.text("access-key"), options.text("secret-key"), token);
        return new AclClientRPCHook(keys);
    }
}
